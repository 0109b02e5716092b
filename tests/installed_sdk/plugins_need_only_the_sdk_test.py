#!/usr/bin/env python3
"""The plugins of this tree need nothing of core/ but what the SDK installs.

hidden_core.py --prefix PREFIX --source SOURCE --work DIR [--all]

plugins/ is copied to DIR and made a project of its own that knows Strata by find_package(Strata) in PREFIX and by nothing else. Of every
source the compiler says which headers it reads: each of Strata's is to be an installed one, none may lie in SOURCE. Then plugins are
built, one that needs the toolbox and one of plain sources, with --all every one but NCCL's; `strata plugins list` is to take what was
built for those plugins, and with --all a run trains on them.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(plugins_of_the_tree LANGUAGES CXX)
include(GNUInstallDirs)
find_package(Strata REQUIRED)
set(STRATA_CUDA OFF)
add_subdirectory(plugins)
"""
SAMPLE = ("strata_partitioner_zero3", "strata_scheduler_1f1b")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine import write_tokens  # noqa: E402


def call(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"FAILED: exit status {done.returncode} of {shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def headers_of(entry):
    """What the compiler reads for one entry of compile_commands.json, found by its preprocessor."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    rule = call(words[:at] + words[at + 2:] + ["-M", "-MT", "x"], cwd=entry["directory"])
    names = shlex.split(rule.replace("\\\n", " "))[1:]
    return [pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"]) / name)) for name in names]


def check_headers(build, prefix, source):
    hidden = [source / folder for folder in ("core", "sdk", "plugins", "tests", "cmake", "examples")]
    entries = json.loads((build / "compile_commands.json").read_text())
    problems, installed = [], set()
    for entry in entries:
        for header in headers_of(entry):
            if any(header.is_relative_to(folder) for folder in hidden):
                problems.append(f"{entry['file']} reads {header}")
            elif header.parent.is_relative_to(prefix / "include/strata"):
                installed.add(header)
    if problems:
        sys.exit("FAILED: the source tree is read:\n" + "\n".join(problems))
    if not entries or not installed:
        sys.exit(f"FAILED: {len(entries)} sources read {len(installed)} installed headers: nothing was looked at")
    print(f"{len(entries)} sources read {len(installed)} headers of the SDK and none of the source tree")


def check_listed(strata, built, expected):
    """What was built is what is found under its name, before what is installed."""
    listed = json.loads(call([strata, "plugins", "list", "--format", "json"], env=dict(os.environ, STRATA_PLUGIN_PATH=str(built))))
    files = {entry["plugin"]: entry["file"] for entry in listed if pathlib.Path(entry["file"]).parent == built}
    if sorted(files) != sorted(expected):
        sys.exit(f"FAILED: of {sorted(expected)}, `strata plugins list` finds {sorted(files)} in {built}")
    unusable = {entry["plugin"]: entry for entry in listed if entry["plugin"] in files and entry["file"] == files[entry["plugin"]]
                and (entry.get("problem") or entry.get("shadowed_by"))}
    if unusable:
        sys.exit(f"FAILED: {json.dumps(unusable, indent=1)}")
    print(f"{len(files)} of them built, and found: {', '.join(sorted(files))}")


def train(strata, built, prefix, work):
    write_tokens(work / "train.bin")
    config = {"device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 32, "gpt_neox": {"hidden_size": 32, "layers": 2, "heads": 2, "vocabulary": 257}},
              "data": {"path": str(work / "train.bin")}, "train": {"steps": 3, "micro_batch": 2, "global_batch": 8}, "learning_rate": {"base": 1e-2},
              "parallel": {"pipeline": 2}, "scheduler": {"plugin": "1f1b"}, "partitioner": {"plugin": "zero3"}}
    (work / "train.json").write_text(json.dumps(config))
    losses = {}
    for name, folder in (("installed", prefix / "lib/strata/plugins"), ("built here", built)):
        call([strata, "train", work / "train.json", "--nproc", "4", "--quiet", "--summary", work / "summary.json"],
             env=dict(os.environ, STRATA_PLUGIN_PATH=str(folder), OMP_NUM_THREADS="1"))
        losses[name] = json.loads((work / "summary.json").read_text())["losses"]
    if not losses["installed"] or losses["installed"] != losses["built here"]:
        sys.exit(f"FAILED: the losses of a run differ: {losses}")
    print("a run on them has the losses of the installed ones")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("prefix", "source", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true", help="build every plugin")
    arguments = parser.parse_args()
    prefix, source, work = arguments.prefix.resolve(), arguments.source.resolve(), arguments.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shutil.copytree(source / "plugins", work / "plugins")
    (work / "CMakeLists.txt").write_text(PROJECT)
    build = work / "build"
    call(["cmake", "-S", work, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
          f"-DCMAKE_PREFIX_PATH={prefix}"])
    check_headers(build, prefix, source)
    targets = [] if arguments.all else ["--target", *SAMPLE]
    call(["cmake", "--build", build, "--parallel", "1", *targets])
    names = [f"{path.parent.parent.name}/{path.parent.name}" for path in source.glob("plugins/*/*/CMakeLists.txt")]
    expected = [name for name in names if name != "communicator/nccl"] if arguments.all else \
        [name for name in names if "strata_" + name.replace("/", "_") in SAMPLE]
    strata, built = prefix / "bin/strata", build / "lib/strata/plugins"
    check_listed(strata, built, expected)
    if arguments.all:
        train(strata, built, prefix, work)


if __name__ == "__main__":
    main()
