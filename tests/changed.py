"""changed.py BUILD [REVISION]: builds and runs the tests of the folders that differ from REVISION (HEAD), and the quick ones.

A changed file belongs to a folder of tests by FOLDERS below; a folder of tests is one with a CMakeLists.txt. tests/run.sh --changed calls it.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A pattern of changed files, and the folders of tests for it. Every pattern that matches counts.
FOLDERS = [
    (r"core/engine/(\w+)/", [r"unit/\1", "house"]),
    (r"core/engine/(?:step|state|memory|program|run|plan|resolve)/", ["unit/run"]),
    (r"core/engine/memory/", ["unit/state"]),
    (r"core/engine/checkpoint/", ["faults"]),
    (r"core/interface/", ["unit/interface", "interface_layout", "unit/fakes"]),
    (r"core/tools/(\w+)/", [r"unit/tools/\1", r"\1", "unit/tools", "house"]),
    (r"core/tools/(?:command/|\w+\.cpp)", ["messages"]),
    (r"sdk/toolbox/", ["unit/toolbox", "unit/partitioner", "unit/optimizer", "unit/model"]),
    (r"sdk/fakes/", ["unit/fakes"]),
    (r"sdk/conformance/", ["conformance"]),
    (r"sdk/template/", ["plugin_templates"]),
    (r"plugins/(\w+)/", [r"unit/\1", "conformance"]),
    (r"configs/|.*\.md$", ["readme", "house"]),
    (r"tests/(unit/tools/\w+|unit/\w+|\w+)/", [r"\1"]),
    (r"cmake/|CMakeLists.txt$", ["install"]),
]


def lines(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def changed_files(revision):
    """What differs from the revision in the working tree, files that git does not know yet included."""
    return sorted(set(lines("git", "diff", "--name-only", "--no-renames", revision)) | set(lines("git", "ls-files", "--others", "--exclude-standard")))


def folders_of(files):
    """The folders of tests, below tests/, for the changed files."""
    found = set()
    for name in files:
        for pattern, folders in FOLDERS:
            if match := re.match(pattern, name):
                found |= {match.expand(folder) for folder in folders}
    return found


def tests_in(listed, build):
    """Each test of ctest's list: its name, its folder below tests/, its labels and the program that it starts."""
    for test in listed["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        folder = os.path.relpath(properties["WORKING_DIRECTORY"], build / "tests")
        yield test["name"], folder, properties.get("LABELS", []), test.get("command", [""])[0]


def chosen(listed, build, folders):
    """Names and programs of the tests in these folders or labelled quick; none of those labelled full."""
    return {name: program for name, folder, labels, program in tests_in(listed, build)
            if "full" not in labels and ("quick" in labels or folder in folders)}


def targets_of(programs, build):
    """What must be built: the tests' own programs, or everything where one of the tests is in Python, which may start any program."""
    own = [os.path.relpath(program, build) for program in programs if pathlib.Path(program).is_relative_to(build)]
    return sorted(own) if len(own) == len(programs) else ["all"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("revision", nargs="?", default="HEAD", help="what the working tree is compared with (default: HEAD)")
    parser.add_argument("--quick", action="store_true", help="only the quick tests, whatever changed")
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    given = parser.parse_args()
    build = given.build.resolve()
    files = [] if given.quick else changed_files(given.revision)
    listed = json.loads("\n".join(lines("ctest", "--test-dir", str(build), "--show-only=json-v1")))
    tests = chosen(listed, build, folders_of(files))
    if not given.quick:
        print(f"{len(files)} files differ from {given.revision}; {len(tests)} tests: {' '.join(sorted(tests))}", flush=True)
    built = subprocess.run(["cmake", "--build", str(build), "--parallel", given.jobs, "--target", *targets_of(list(tests.values()), build)], cwd=ROOT)
    if built.returncode != 0:
        return built.returncode
    names = "^(" + "|".join(map(re.escape, sorted(tests))) + ")$"
    return subprocess.run(["ctest", "--test-dir", str(build), "--parallel", str(2 * int(given.jobs)), "--output-on-failure", "--no-tests=error", "-R", names],
                          cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
