#!/usr/bin/env python3
"""Runs the commands of README.md as they stand there, in their order, in one shell, each block from the repository's folder; any that
fails is named with its line.

readme.py --readme README.md --build BUILD --work DIR

In DIR there is what a clone holds after its build: links to the folders of the repository, and BUILD as build/release. Two things
differ from a reader's shell: the two set-up scripts are only asked for their --help (they are run whole on every change, by the
tests' own caller), and `strata train` and `strata compare` get few steps.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

SET_UP = ("./examples/quickstart.sh", "./tests/run.sh")
SHORTER = """
repository=$PWD
strata() {
  case $1 in
    train) command strata "$@" --quiet --set train.steps=2 ;;
    compare) command strata "$@" --quiet --rounds 1 --steps 2 --warmup-steps 1 ;;
    *) command strata "$@" ;;
  esac
}
"""


def blocks(text):
    """(language, line number of its first line, lines) of every fenced block."""
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match[1], text.count("\n", 0, match.start(2)) + 1, match[2].splitlines()


def shell_script(readme):
    """One script of all shell blocks that says before each command where it stands."""
    script = ["set -e", SHORTER]
    for language, first, lines in blocks(readme):
        if language == "sh":
            script.append('cd "$repository"')
            continued = False
            for number, line in enumerate(lines, first):
                words = line.split()
                if words and words[0] in SET_UP:
                    line = f"{words[0]} --help >/dev/null"
                script += [line] if continued else [f"place={number}", line]
                continued = line.endswith("\\")
    return "\n".join(["trap 'status=$?; [ $status = 0 ] || echo \"README.md:$place: exit status $status\" >&2' EXIT", *script, ""])


def prepare(repository, build, work):
    shutil.rmtree(work, ignore_errors=True)
    (work / "build").mkdir(parents=True)
    (work / "home").mkdir()
    (work / "build/release").symlink_to(build)
    for folder in ("configs", "examples", "tests", "cmake", "core", "sdk", "plugins"):
        (work / folder).symlink_to(repository / folder)
    (work / "my_texts").mkdir()
    shutil.copy(repository / "LICENSE", work / "my_texts/license.txt")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("readme", "build", "work"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    readme, repository, work = arguments.readme.read_text(), arguments.readme.resolve().parent, arguments.work.resolve()
    prepare(repository, arguments.build.resolve(), work)
    environment = {**os.environ, "HOME": str(work / "home"), "OMP_NUM_THREADS": "1"}
    script = shell_script(readme)
    (work / "script.sh").write_text(script)
    done = subprocess.run(["bash", "script.sh"], cwd=work, env=environment)
    if done.returncode != 0:
        sys.exit("readme.py: a command of README.md fails")
    print(f"README.md: {script.count('place=')} commands work")


if __name__ == "__main__":
    main()
