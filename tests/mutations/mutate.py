#!/usr/bin/env python3
"""Plants the defects of defects.py in the sources, one after the other, and demands that the test named with each fails.

  tests/mutations/mutate.py                      # all, in build/release
  tests/mutations/mutate.py lamb streams         # those with a name that begins so
  tests/mutations/mutate.py --build build/debug
  tests/mutations/mutate.py --list

A defect is planted in the working tree, its test is built and run, and the file is put back. What another program changes meanwhile is built too:
run it in a tree where nobody works. It ends with status 1 where a defect survives, does not compile or is not there any more.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from defects import DEFECTS  # noqa: E402
from place import REPOSITORY  # noqa: E402

TIMEOUT = 900  # seconds that a test may take: one that hangs has failed


def registered(build):
    """The command and the environment of each test of a build folder, by its name."""
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
    tests = {}
    for test in json.loads(listed.stdout)["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        if "command" in test:
            tests[test["name"]] = test["command"], dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
    return tests


def verdict(defect, build, tests):
    """What became of it: "failed" is what must."""
    path = REPOSITORY / defect.file
    before = path.read_text()
    if before.count(defect.old) != 1:
        return f"not planted: {defect.file} holds the old text {before.count(defect.old)} times"
    if defect.test not in tests:
        return f"not planted: {build} has no test {defect.test}"
    command, environment = tests[defect.test]
    try:
        path.write_text(before.replace(defect.old, defect.new))
        built = subprocess.run(["cmake", "--build", build, "--target", pathlib.Path(command[0]).name], capture_output=True, text=True)
        if built.returncode != 0:
            return "does not compile:\n" + built.stdout[-4000:]
        try:
            ran = subprocess.run([command[0], *defect.cases], env={**os.environ, **environment}, cwd=build, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return "failed"
        return "survived" if ran.returncode == 0 else "failed"
    finally:
        path.write_text(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="the beginnings of names")
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release", help="the build folder")
    parser.add_argument("--list", action="store_true", help="print the defects, and plant none")
    options = parser.parse_args()
    chosen = [defect for defect in DEFECTS if not options.names or any(defect.name.startswith(name) for name in options.names)]
    if not chosen:
        parser.error(f"no defect has a name that begins with {' or '.join(options.names)}; --list prints them")
    if options.list:
        for defect in chosen:
            print(f"{defect.name}: {defect.file}, {defect.test}")
        return 0
    tests, wrong = registered(options.build), 0
    for defect in chosen:
        begin = time.monotonic()
        said = verdict(defect, options.build, tests)
        wrong += said != "failed"
        print(f"{defect.name}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} were found. The build folder has the last defect until it is built again.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
