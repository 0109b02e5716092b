#!/usr/bin/env python3
"""Does each changed C++ file compile alone, without the others of its folder and without precompiled headers?

  alone.py --build BUILD [--seconds N] [FILE ...]

The files that differ from where the change left the main branch, or those that are named; a header is compiled as if it were a source.
What does not fit into N seconds (60) is left out and named. 77, which ctest counts as skipped, where nothing is known of a change."""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import time

from changes import ROOT, SOURCES, Commands, changed_files


def compile_alone(name, command, deadline):
    """(file, what the compiler said or nothing); None when there is no time."""
    left = deadline - time.monotonic()
    if left <= 0:
        return name, None
    words, folder = command
    path = str(ROOT / name)
    source = ["-include", path, "-x", "c++", os.devnull] if path.endswith(".hpp") else [path]
    done = subprocess.run([*words, "-fsyntax-only", *source], cwd=folder, capture_output=True, text=True)
    return name, done.stderr if done.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    names = arguments.files or changed_files(SOURCES)
    if names is None:
        print("skipped: git knows no commit that a change begins at")
        return 77
    commands = Commands(arguments.build)
    known = [(name, command) for name in names if name.endswith((".cpp", ".hpp")) and (command := commands.of(name))]
    deadline = time.monotonic() + arguments.seconds
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        said = dict(pool.map(lambda one: compile_alone(*one, deadline), known))
    wrong = {name: text for name, text in said.items() if text}
    left_out = [name for name, text in said.items() if text is None]
    for name, text in wrong.items():
        print(f"{name}\n{text}")
    if left_out:
        print(f"no time for: {' '.join(left_out)}")
    done = len(said) - len(left_out)
    print(f"compiled alone: {len(wrong)} of {done} changed files do not compile" if wrong else f"compiled alone: {done} of {len(known)} changed files do")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
