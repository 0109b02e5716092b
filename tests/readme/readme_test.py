"""Runs the commands of the first pages (README.md, examples/README.md, sdk/README.md) as they stand there: those of a page in their order, in one
shell, each block from the repository's folder; any that fails is named with its line. Commands are the lines of `sh` blocks, the lines after
`$` in `console` blocks, and what begins with `strata` in a table whose last column is `proof`.

In the folder they run in there is what a clone holds after its build: links to the folders of the repository, and the build as
build/release. Two things differ from a reader's shell: the two set-up scripts are only asked for their --help (they are run whole on
every change, by the tests' own caller), and `strata train` and `strata compare` get few steps, so that
`strata sample` refuses weights that know nothing.
"""
import os
import re
import shutil

import pytest

from commands import call

PAGES = ("README.md", "examples/README.md", "sdk/README.md")

SET_UP = ("./examples/quickstart.sh", "./tests/run.sh")
SHORTER = """
repository=$PWD
strata() {
  case $1 in
    train) command strata "$@" --quiet --set train.steps=2 ;;
    sample) command strata "$@" 2>&1 | grep -q "weights that have learned bytes" ;;   # two steps teach nothing, and it says so
    compare) command strata "$@" --quiet --rounds 1 --steps 2 --warmup-steps 1 ;;
    *) command strata "$@" ;;
  esac
}
"""


def command_lines(page):
    """(number, line) of each line of the commands of a page; (number, None) where a block begins."""
    language, proofs = None, False
    for number, line in enumerate(page.splitlines(), 1):
        proofs = line.startswith("|") and (proofs or line.endswith("| proof |"))
        if line.startswith("```"):
            language = (line[3:] or "text") if language is None else None
            yield number, None
        elif language == "sh":
            yield number, line
        elif language == "console" and line.startswith("$ "):
            yield number, line[2:]
        elif proofs and language is None:
            for command in re.findall(r"`(strata [^`]+)`", line):
                yield number, None
                yield number, command


def shell_script(name, page):
    """One script of all commands that says before each where it stands."""
    script = ["set -e", SHORTER]
    continued = False
    for number, line in command_lines(page):
        if line is None:
            script.append('cd "$repository"')
            continue
        words = line.split()
        if words and words[0] in SET_UP:
            line = f"{words[0]} --help >/dev/null"
        script += [line] if continued else [f"place={number}", line]
        continued = line.endswith("\\")
    return "\n".join([f"trap 'status=$?; [ $status = 0 ] || echo \"{name}:$place: exit status $status\" >&2' EXIT", *script, ""])


def prepare(repository, build, work):
    (work / "build").mkdir(parents=True)
    (work / "home").mkdir()
    (work / "build/release").symlink_to(build)
    for folder in ("configs", "examples", "tests", "cmake", "core", "sdk", "plugins"):
        (work / folder).symlink_to(repository / folder)
    (work / "my_texts").mkdir()
    shutil.copy(repository / "LICENSE", work / "my_texts/license.txt")


def test_commands_of_blocks_consoles_and_tables():
    page = "```sh\na \\\n  b\n```\n```console\n$ strata c\nprinted\n```\n|  | proof |\n| `strata d` | `e` |\n`strata f`\n| `strata g` |\n```\nh\n```\n"
    assert [line for _, line in command_lines(page) if line] == ["a \\", "  b", "strata c", "strata d"]
    assert shell_script("page", page).count("place=") == 3


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_the_libtorch(repository, page):
    version = (repository / "cmake/torch_version").read_text().strip()
    assert set(re.findall(r"libtorch (\d+\.\d+\.\d+)", (repository / page).read_text())) <= {version}


@pytest.mark.parametrize("page", PAGES)
def test_commands(repository, build, tmp_path, page):
    prepare(repository, build, tmp_path)
    script = shell_script(page, (repository / page).read_text())
    assert script.count("place=") > 1, f"{page} has no commands"
    (tmp_path / "script.sh").write_text(script)
    call(["bash", "script.sh"], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}, timeout=900)
