#!/usr/bin/env python3
"""The first hour of a plugin's author: `strata plugins new` of each kind in an empty folder, then the commands that it prints.

templates.py --prefix PREFIX --work DIR [--only KIND]

PREFIX holds an installed tree; nothing else of Strata is within reach, and it is found as a reader's would be, by the PATH. The
commands are run as they are printed, but for a comparison, which is made short.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

NAME = "mine"
SHORTER = " --rounds 1 --steps 2 --warmup-steps 1 --format json"


class Failed(Exception):
    """What a reader of these pages would have met."""


def run(command, folder, environment):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"in {folder}: exit status {done.returncode}: {command}\n{done.stdout}")
    return done.stdout


def project(kind, work, environment):
    folder = work / kind
    folder.mkdir(parents=True)
    printed = run(f"strata plugins new {kind} {NAME}", folder, environment)
    files, commands = printed.split("\nNext:\n")
    if sorted(files.split()) != sorted(file.name for file in folder.iterdir()):
        raise Failed(f"other files are there than were printed:\n{printed}")
    for file in folder.iterdir():
        if b"@name@" in file.read_bytes() or b"@tokens@" in file.read_bytes():
            raise Failed(f"the name is not put in everywhere in {file.name}")
    commands = [command.strip() for command in commands.splitlines()]
    for needed in ("cmake -B build", "ctest", "strata plugins check", "strata compare quickstart.yaml"):
        if not any(command.startswith(needed) for command in commands):
            raise Failed(f"no command begins with `{needed}`:\n{printed}")
    for command in commands:
        run(command + SHORTER if command.startswith("strata compare") else command, folder, environment)
    if not (folder / f"build/lib{NAME}.so").exists() or not (folder / f"build/{NAME}_test").exists():
        raise Failed(f"the library or its unit test was not built")
    tests = run("ctest --test-dir build --show-only", folder, environment)
    for test in (f"{NAME}_test", f"{NAME}_test_conformance"):
        if f": {test}\n" not in tests:
            raise Failed(f"{test} is not among its tests:\n{tests}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    prefix, work = arguments.prefix.resolve(), arguments.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if name != "STRATA_PLUGIN_PATH"}
    environment |= {"PATH": f"{prefix}/bin:{environment['PATH']}", "OMP_NUM_THREADS": "1", "CMAKE_GENERATOR": "Ninja",
                    "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    kinds = sorted(folder.name for folder in (prefix / "share/strata/templates").iterdir())
    if len(kinds) != 9:
        sys.exit(f"templates.py: there are nine kinds of plugin, and templates of {kinds}")
    failures = []
    for kind in kinds:
        if arguments.only not in (None, kind):
            continue
        started = time.monotonic()
        try:
            project(kind, work, environment)
            print(f"{kind}: made, built, tested and compared in {time.monotonic() - started:.0f} s", flush=True)
        except Failed as error:
            failures.append(kind)
            print(f"FAILED: {kind}: {error}", flush=True)
    if failures:
        sys.exit(f"templates.py: {', '.join(failures)}: see above")


if __name__ == "__main__":
    main()
