"""The first hour of a plugin's author: `strata plugins new` of each kind in an empty folder, then the commands that it prints.

Nothing of Strata but the installed tree is within reach, and it is found as a reader's would be, by the PATH. The commands are run as they
are printed, but for a comparison, which is made short.
"""

import re
import time

import pytest
from commands import call
from place import REPOSITORY

NAME = "mine"
SHORTER = " --rounds 1 --steps 2 --warmup-steps 1 --format json"
KINDS = sorted(folder.name for folder in (REPOSITORY / "sdk/template").iterdir() if folder.is_dir())


@pytest.fixture
def shell(prefix, compile_environment):
    """A function that runs a command in a folder, as a reader would."""
    environment = {name: value for name, value in compile_environment.items() if name != "STRATA_PLUGIN_PATH"}
    environment |= {"PATH": f"{prefix}/bin:{environment['PATH']}", "OMP_NUM_THREADS": "1", "CMAKE_GENERATOR": "Ninja",
                    "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    return lambda command, folder: call(["bash", "-c", command], cwd=folder, env=environment, timeout=600)


def test_there_are_templates_of_every_kind(prefix):
    assert sorted(folder.name for folder in (prefix / "share/strata/templates").iterdir()) == KINDS
    assert KINDS == sorted(folder.name for folder in (REPOSITORY / "plugins").iterdir() if folder.is_dir())


@pytest.mark.parametrize("kind", KINDS)
def test_new_plugin(shell, tmp_path, kind):
    printed = shell(f"strata plugins new {kind} {NAME}", tmp_path)
    files, commands = printed.split("\nNext:\n")
    assert sorted(files.split()) == sorted(file.name for file in tmp_path.iterdir()), "other files are there than were printed"
    for file in tmp_path.iterdir():
        assert b"@name@" not in file.read_bytes() and b"@tokens@" not in file.read_bytes(), f"the name is not put in everywhere in {file.name}"
    commands = [command.strip() for command in commands.splitlines()]
    for needed in ("cmake -B build", "ctest", "strata plugins check", "strata compare quickstart.yaml"):
        assert any(command.startswith(needed) for command in commands), f"no command begins with `{needed}`"
    for command in commands:
        shell(command + SHORTER if command.startswith("strata compare") else command, tmp_path)
    assert (tmp_path / f"build/lib{NAME}.so").exists() and (tmp_path / f"build/{NAME}_test").exists()
    tests = shell("ctest --test-dir build --show-only", tmp_path)
    for test in (f"{NAME}_test", f"{NAME}_test_conformance"):
        assert f": {test}\n" in tests


def test_from_an_idea_to_a_comparison_in_a_minute(shell, tmp_path):
    """The commands that sdk/README.md begins with, as they stand there, nothing made short. For two idle processors."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (REPOSITORY / "sdk/README.md").read_text(), re.MULTILINE | re.DOTALL)
    commands, = [block.splitlines() for block in blocks if "strata plugins new" in block]
    assert len(commands) == 5, commands
    begin = time.monotonic()
    said = shell("set -e\nunset OMP_NUM_THREADS CMAKE_BUILD_PARALLEL_LEVEL\n" + "\n".join(commands), tmp_path)
    assert time.monotonic() - begin <= 60 and "equal bits" in said, said


def test_without_catch2_a_test_is_skipped(shell, tmp_path):
    shell(f"strata plugins new scheduler {NAME}", tmp_path)
    shell("cmake -B build -DCMAKE_DISABLE_FIND_PACKAGE_Catch2=ON", tmp_path)
    said = shell(f"ctest --test-dir build -R '^{NAME}_test$'", tmp_path)
    assert "Skipped" in said and "did not run" in said, said
