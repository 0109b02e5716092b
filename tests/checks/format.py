#!/usr/bin/env python3
"""Is every C++ file in the tree as clang-format would have it?   format.py [FILE ...]

Exit status 1 with the files that are not. Without clang-format nothing is checked: 77, which ctest counts as skipped."""
import concurrent.futures
import os
import shutil
import subprocess
import sys

from changes import ROOT, git

SUFFIXES = (".cpp", ".hpp", ".c", ".cu", ".cuh")


def differs(name):
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", name], cwd=ROOT, capture_output=True)
    return done.returncode != 0


def main():
    if shutil.which("clang-format") is None:
        print("skipped: there is no clang-format here (Debian: clang-format)")
        return 77
    names = [name for name in sys.argv[1:] or git("ls-files", "-c", "-o", "--exclude-standard") or [] if name.endswith(SUFFIXES) and (ROOT / name).is_file()]
    if not names:
        print("skipped: git lists no C++ file here")
        return 77
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        wrong = [name for name, bad in zip(names, pool.map(differs, names)) if bad]
    for name in wrong:
        print(name)
    print(f"clang-format: {len(wrong)} of {len(names)} files are not formatted; run clang-format -i on them" if wrong else
          f"clang-format: {len(names)} files are formatted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
