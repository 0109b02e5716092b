#!/usr/bin/env python3
"""Findings of clang-tidy in the changed sources.   tidy.py --build BUILD [--seconds N] [FILE ...]

Only lines that the change touches count. clang-tidy 16 or newer is needed: older ones do not know std::source_location. What does not fit
into N seconds (180) is left out and named. 77, which ctest counts as skipped, where there is no clang-tidy or nothing is known of a change."""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

from changes import ROOT, Commands, base, changed_files, git


def clang_tidy():
    """The newest of 16 or more, or nothing."""
    for name in (*(f"clang-tidy-{version}" for version in range(25, 15, -1)), "clang-tidy"):
        if shutil.which(name):
            version = re.search(r"version (\d+)", subprocess.run([name, "--version"], capture_output=True, text=True).stdout)
            if version and int(version[1]) >= 16:
                return name
    return None


def touched_lines(name):
    """The ranges that the change touches, as clang-tidy's --line-filter takes them."""
    ranges = []
    for line in git("diff", "-U0", base(), "--", name) or []:
        found = re.match(r"@@ .*\+(\d+)(?:,(\d+))? @@", line)
        if found and found[2] != "0":
            ranges.append([int(found[1]), int(found[1]) + int(found[2] or 1) - 1])
    return ranges


def tidy(program, name, command, deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        return name, None
    words, folder = command
    lines = json.dumps([{"name": name, "lines": touched_lines(name)}] if touched_lines(name) else [{"name": name}])
    try:
        done = subprocess.run([program, "--quiet", f"--line-filter={lines}", "--warnings-as-errors=*", str(ROOT / name), "--", *words[1:], "-Wno-everything"],
                              cwd=folder, capture_output=True, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        return name, None
    return name, done.stdout.strip() if done.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    program = clang_tidy()
    if program is None:
        print("skipped: there is no clang-tidy of version 16 or newer here (Debian: clang-tidy-16)")
        return 77
    names = arguments.files or changed_files(("*.cpp",))
    if names is None:
        print("skipped: git knows no commit that a change begins at")
        return 77
    commands = Commands(arguments.build)
    known = [(name, command) for name in names if (command := commands.of(name))]
    deadline = time.monotonic() + arguments.seconds
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        said = dict(pool.map(lambda one: tidy(program, *one, deadline), known))
    wrong = {name: text for name, text in said.items() if text}
    left_out = [name for name, text in said.items() if text is None]
    for text in wrong.values():
        print(text)
    if left_out:
        print(f"no time for: {' '.join(left_out)}")
    done = len(said) - len(left_out)
    print(f"clang-tidy: complains of {len(wrong)} of {done} changed sources" if wrong else f"clang-tidy: nothing in {done} of {len(known)} changed sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
