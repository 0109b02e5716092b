"""Runs the commands of README.md as they stand there, in their order, in one shell, each block from the repository's folder; any that
fails is named with its line.

In the folder they run in there is what a clone holds after its build: links to the folders of the repository, and the build as
build/release. Two things differ from a reader's shell: the two set-up scripts are only asked for their --help (they are run whole on
every change, by the tests' own caller), and `strata train` and `strata compare` get few steps, so that
`strata sample` refuses weights that know nothing.
"""
import os
import re
import shutil

from commands import call

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
    (work / "build").mkdir(parents=True)
    (work / "home").mkdir()
    (work / "build/release").symlink_to(build)
    for folder in ("configs", "examples", "tests", "cmake", "core", "sdk", "plugins"):
        (work / folder).symlink_to(repository / folder)
    (work / "my_texts").mkdir()
    shutil.copy(repository / "LICENSE", work / "my_texts/license.txt")


def test_readme_names_the_libtorch(repository):
    version = (repository / "cmake/torch_version").read_text().strip()
    assert set(re.findall(r"libtorch (\d+\.\d+\.\d+)", (repository / "README.md").read_text())) <= {version}


def test_readme(repository, build, tmp_path):
    prepare(repository, build, tmp_path)
    script = shell_script((repository / "README.md").read_text())
    assert script.count("place=") > 1, "README.md has no commands"
    (tmp_path / "script.sh").write_text(script)
    call(["bash", "script.sh"], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}, timeout=900)
