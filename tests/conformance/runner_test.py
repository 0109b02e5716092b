"""The conformance kit's own behaviour: crashes, hangs, output, reports, usage."""
import os
import pathlib
import re
import shutil
import time
import xml.etree.ElementTree

import pytest
from commands import run, told
from kit import cases_of, kit, library
from place import program


def test_crash():
    done = kit(library("general_crashes"), "--only", "general.defaults_create", "--seed", "7")
    assert done.returncode == 1, f"a crash ends the kit with status {done.returncode}"
    assert "SIGSEGV (Segmentation fault)" in done.stdout and "CRASHED" in done.stdout, f"a crash is reported as {done.stdout}"
    assert "--seed 7 --only general.defaults_create --in-process" in done.stdout, f"no command runs it again: {done.stdout}"
    assert re.search(r"^0 passed, 1 failed, 0 skipped in [0-9.]+ s \(seed 7\)$", done.stdout, re.M), f"the last line is {done.stdout}"


def test_hang():
    begin = time.monotonic()
    done = kit(library("general_hangs"), "--only", "general.defaults_create", "--deadline", "1", "--format", "junit")
    assert done.returncode == 1 and time.monotonic() - begin < 30, f"a hang: status {done.returncode}, {time.monotonic() - begin:.0f} s"
    suite = xml.etree.ElementTree.fromstring(done.stdout).find("testsuite")
    assert suite.get("errors") == "1" and "after 1 s" in suite.find("testcase/error").get("message"), f"JUnit of a hang: {done.stdout}"


def test_plugin_that_exits():
    done = kit(library("general_exits"), "--only", "general.defaults_create", "--format", "json")
    case = cases_of(done)[library("general_exits")]["general.defaults_create"]
    assert case["status"] == "crashed" and "status 0" in case["text"], f"a plugin that calls exit(0): {case}"


def test_output_of_a_case():
    done = kit(library("general_prints"), "--format", "json")
    cases = cases_of(done)[library("general_prints")]
    assert done.returncode == 0 and "made at the wrong place" in cases["general.defaults_create"]["output"], "output of a case is lost or leaks"
    assert "made" not in done.stderr, f"output of a case leaks to standard error: {done.stderr}"


def test_in_process():
    done = kit(library("general_default_refused"), "--only", "general.defaults_create", "--in-process")
    assert done.returncode == 1 and "depth is 2; it must be another" in done.stdout, f"--in-process: {done.stdout}"


def test_order_does_not_depend_on_jobs():
    one, two = (kit(library("general_none"), "--jobs", jobs).stdout for jobs in ("1", "4"))
    names = re.compile(r"^  \w+ +(\S+)", re.M)
    assert names.findall(one) == names.findall(two) and len(names.findall(one)) > 12, "the report's order depends on --jobs"


def test_relative_path():
    relative = os.path.relpath(library("general_none"))
    assert kit(relative, "--only", "scheduler").returncode == 0, f"the relative path {relative} is not taken"


@pytest.mark.parametrize("words, text", [
    ([], "no plugin given"),
    (["no/such/library.so"], "No such file"),
    (["scheduler/no_such_plugin"], "no plugin scheduler/no_such_plugin"),
    ([library("general_none"), "--only", "scheduler.large_"], "the nearest is scheduler.large"),
    ([library("general_none"), "--only", "precision"], "matches no case"),
    ([library("general_none"), "--format", "html"], "junit")])
def test_wrong_use(words, text):
    done = kit(*words)
    assert done.returncode == 2 and text in done.stderr + done.stdout, told(done)


def test_list():
    listed = kit("--list").stdout.splitlines()
    assert len(listed) > 40 and all(re.match(r"[a-z_]+\.[a-z0-9_]+: \S.*\.$", line) for line in listed), listed


def test_damaged_file(tmp_path):
    (tmp_path / "broken.so").write_bytes(b"\x7fELF, nearly")
    done = kit(tmp_path / "broken.so")
    assert done.returncode == 1 and "FAILED" in done.stdout and "general.manifest" in done.stdout, told(done)


def test_without_the_kit(tmp_path):
    behind = pathlib.Path(program()).parents[1] / "libexec/strata/strata"
    done = run([shutil.copy(behind, tmp_path / "strata"), "plugins", "check", "--list"], timeout=60)
    assert done.returncode == 3 and "strata-sdk" in done.stderr and done.stderr.count("\n") == 1, told(done)
