#!/usr/bin/env python3
"""planted.py --strata STRATA --planted FOLDER --work FOLDER: the conformance kit over plugins that are each wrong in one way, listed
with the case that must catch them in FOLDER/planted.txt, and the kit's own behaviour: crashes, hangs, output, reports, usage."""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree

parser = argparse.ArgumentParser()
parser.add_argument("--strata", required=True)
parser.add_argument("--planted", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--only", help="libraries whose name holds this")
parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th defect")
arguments = parser.parse_args()
FAILURES = ("failed", "crashed", "timed out")
problems = []
# What the plugins without a defect leave out, as they have nothing of the kind; every other case must run on them.
STATELESS = {"general.state", "general.newer_state", "general.missing_state"}
THREADLESS = {"general.threads"}
OPTIONLESS = {"general.limits", "general.corners"}
SKIPPED = {
    "communicator_communicator_none": STATELESS | THREADLESS,
    "device_device_none": STATELESS | THREADLESS | OPTIONLESS,
    "model_model_none": STATELESS | THREADLESS,
    "offload_offload_none": STATELESS | {"offload.three_gibibytes"},
    "optimizer_optimizer_none": STATELESS | THREADLESS,
    "partitioner_sharded_none": STATELESS | THREADLESS | OPTIONLESS,
    "precision_precision_none": THREADLESS,
    "scheduler_alone_nothing": STATELESS | THREADLESS | {"scheduler.large"},
    "scheduler_general_none": {"scheduler.large"},
    "scheduler_general_prints": {"scheduler.large"},
    "scheduler_scheduler_none": STATELESS | THREADLESS,
}


def check(holds, text):
    if not holds:
        problems.append(text)
        print(f"FAILED: {text}", flush=True)


def kit(*words):
    """The finished `strata plugins check WORDS`."""
    return subprocess.run([arguments.strata, "plugins", "check", *words], capture_output=True, text=True, timeout=300)


def all_cases():
    """The names of the cases of all kinds."""
    return {line.split(":")[0] for line in kit("--list").stdout.splitlines()}


def cases_of(done):
    """What a --format json run says, by library and case."""
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr}")
    return {plugin["file"]: {case["name"]: case for case in plugin["cases"]} for plugin in json.loads(done.stdout)["plugins"]}


def planted():
    """(library, the case that must fail or "none")."""
    with open(os.path.join(arguments.planted, "planted.txt")) as lines:
        pairs = [line.split() for line in lines if line.strip()]
    return [(os.path.realpath(library), case) for library, case in pairs if not arguments.only or arguments.only in library]


def check_good(libraries):
    """Those without a defect pass, and so show that what fails in the others is their defect."""
    for file, cases in cases_of(kit(*libraries, "--format", "json")).items():
        name = re.fullmatch(r"libstrata_((.*?)_.*)\.so", os.path.basename(file))
        listed = {case for case in all_cases() if case.split(".")[0] in ("general", name[2])}
        check(set(cases) == listed, f"{file}: {sorted(set(cases) ^ listed)} are listed or run, and not both")
        for case, outcome in cases.items():
            check(outcome["status"] not in FAILURES, f"{file} has no defect, and {case} {outcome['status']}: {outcome['text']} {outcome['output']}")
        skipped = {case for case, outcome in cases.items() if outcome["status"] == "skipped"}
        check(skipped == SKIPPED[name[1]], f"{file}: skips {sorted(skipped)}, and is to skip {sorted(SKIPPED[name[1]])}")


def check_caught(case, libraries):
    """Each of the libraries fails the case, and says in a sentence why."""
    words = ["--deadline", "3"] if any("hangs" in library for library in libraries) else []
    for file, cases in cases_of(kit(*libraries, "--only", case, "--format", "json", *words)).items():
        outcome = cases[case]
        caught = outcome["status"] in FAILURES and len(outcome["text"]) > 10
        check(caught, f"{os.path.basename(file)}: {case} does not catch it, or says not why: {outcome['status']} {outcome['text']}")


def library(name):
    return os.path.join(arguments.planted, f"libstrata_scheduler_{name}.so")


def check_runner():
    """A crash, a hang, an exit and a plugin's output are results of one case; reports are what they are said to be."""
    general = library("general_none")
    done = kit(library("general_crashes"), "--only", "general.defaults_create", "--seed", "7")
    check(done.returncode == 1, f"a crash ends the kit with status {done.returncode}")
    check("SIGSEGV (Segmentation fault)" in done.stdout and "CRASHED" in done.stdout, f"a crash is reported as {done.stdout}")
    check("--seed 7 --only general.defaults_create --in-process" in done.stdout, f"no command runs it again: {done.stdout}")
    check(re.search(r"^0 passed, 1 failed, 0 skipped in [0-9.]+ s \(seed 7\)$", done.stdout, re.M), f"the last line is {done.stdout}")
    begin = time.monotonic()
    done = kit(library("general_hangs"), "--only", "general.defaults_create", "--deadline", "1", "--format", "junit")
    check(done.returncode == 1 and time.monotonic() - begin < 30, f"a hang: status {done.returncode}, {time.monotonic() - begin:.0f} s")
    suite = xml.etree.ElementTree.fromstring(done.stdout).find("testsuite")
    check(suite.get("errors") == "1" and "after 1 s" in suite.find("testcase/error").get("message"), f"JUnit of a hang: {done.stdout}")
    done = kit(library("general_exits"), "--only", "general.defaults_create", "--format", "json")
    case = cases_of(done)[os.path.realpath(library("general_exits"))]["general.defaults_create"]
    check(case["status"] == "crashed" and "status 0" in case["text"], f"a plugin that calls exit(0): {case}")
    done = kit(library("general_prints"), "--format", "json")
    cases = cases_of(done)[os.path.realpath(library("general_prints"))]
    check(done.returncode == 0 and "made at the wrong place" in cases["general.defaults_create"]["output"], "output of a case is lost or leaks")
    check("made" not in done.stderr, f"output of a case leaks to standard error: {done.stderr}")
    done = kit(library("general_default_refused"), "--only", "general.defaults_create", "--in-process")
    check(done.returncode == 1 and "depth is 2; it must be another" in done.stdout, f"--in-process: {done.stdout}")
    one, two = (kit(general, "--jobs", jobs).stdout for jobs in ("1", "4"))
    names = re.compile(r"^  \w+ +(\S+)", re.M)
    check(names.findall(one) == names.findall(two) and len(names.findall(one)) > 12, "the report's order depends on --jobs")
    relative = os.path.relpath(general)
    check(kit(relative, "--only", "scheduler").returncode == 0, f"the relative path {relative} is not taken")


def check_usage():
    """What is wrong with the command line or the file is said in a line."""
    for words, status, text in (
        ([], 2, "no plugin given"),
        (["no/such/library.so"], 2, "No such file"),
        (["scheduler/no_such_plugin"], 2, "no plugin scheduler/no_such_plugin"),
        ([library("general_none"), "--only", "scheduler.run"], 2, "the nearest is scheduler.runs"),
        ([library("general_none"), "--only", "precision"], 2, "chooses no case"),
        ([library("general_none"), "--format", "html"], 2, "junit"),
    ):
        done = kit(*words)
        check(done.returncode == status and text in done.stderr + done.stdout, f"check {words}: {done.returncode} {done.stdout}{done.stderr}")
    listed = kit("--list").stdout.splitlines()
    check(len(listed) > 40 and all(re.match(r"[a-z]+\.[a-z0-9_]+: \S.*\.$", line) for line in listed), f"--list: {listed}")
    broken = os.path.join(arguments.work, "broken.so")
    with open(broken, "wb") as file:
        file.write(b"\x7fELF, nearly")
    done = kit(broken)
    check(done.returncode == 1 and "FAILED" in done.stdout and "general.manifest" in done.stdout, f"a damaged file: {done.stdout} {done.stderr}")
    alone = shutil.copy(arguments.strata, os.path.join(arguments.work, "strata"))
    done = subprocess.run([alone, "plugins", "check", "--list"], capture_output=True, text=True, timeout=60)
    check(done.returncode == 3 and "SDK" in done.stderr and done.stderr.count("\n") == 1, f"without the kit: {done.returncode} {done.stderr}")


def check_slow_manifest():
    """A library that is nothing but a manifest whose reading takes too long: no compiler makes one, so it is put together here."""
    with open(library("general_none"), "rb") as file:
        text = re.search(rb'\{"format":1.*?\]\}', file.read()).group().decode()
    manifest = json.loads(text)
    option = {"name": "", "type": "text", "default": "", "limits": "", "unit": "", "documentation": "x"}
    manifest["options"] = [dict(option, name=f"o{number}") for number in range(11000)]
    section = json.dumps(manifest, separators=(",", ":")).encode() + b"\0"
    assert len(section) < 1 << 20
    names = b"\0.strata\0.shstrtab\0"
    table = 64 + len(section) + len(names)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine(), 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2)
    sections = bytes(64) + struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(section), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 9, 3, 0, 0, 64 + len(section), len(names), 0, 0, 1, 0)
    path = os.path.join(arguments.work, "slow_manifest.so")
    with open(path, "wb") as file:
        file.write(header + section + names + sections)
    outcome = cases_of(kit(path, "--only", "general.scan", "--format", "json"))[os.path.realpath(path)]["general.scan"]
    check(outcome["status"] == "failed" and "bound is 100" in outcome["text"], f"a manifest of 11000 options: {outcome}")


def machine():
    """The ELF number of this machine, as in our own executable."""
    with open(arguments.strata, "rb") as file:
        return struct.unpack_from("<H", file.read(20), 18)[0]


def main():
    os.makedirs(arguments.work, exist_ok=True)
    begin = time.monotonic()
    by_case = {}
    for number, (path, case) in enumerate(planted()):
        if case != "none" and number % arguments.every != 0:
            continue
        by_case.setdefault(case, []).append(path)
    good = by_case.pop("none", [])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        work = [pool.submit(check_good, [path]) for path in good]
        work += [pool.submit(check_caught, case, paths) for case, paths in by_case.items()]
        if not arguments.only:
            work += [pool.submit(one) for one in (check_runner, check_usage, check_slow_manifest)]
        for one in work:
            check(one.exception() is None, f"{one.exception()!r}")
    defects = sum(map(len, by_case.values()))
    check(arguments.only or defects >= 40, f"only {defects} defects are planted")
    check(arguments.only or len(good) >= 5, f"only {len(good)} plugins without a defect")
    print(f"{defects} planted defects in {len(by_case)} cases, {len(good)} plugins without: {len(problems)} problems, "
          f"{time.monotonic() - begin:.0f} s")
    return 1 if problems else 0


sys.exit(main())
