"""The first pages stay short, name what exists, and show what Strata draws."""
import re
import shlex

import pytest

from commands import call
from place import REPOSITORY


def text(page):
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "BENCHMARKS.md"])
def test_a_first_page_has_120_lines(page):
    assert len(text(page).splitlines()) <= 120


def test_lines_of_the_first_page_have_140_columns():
    assert not [line for line in text("README.md").splitlines() if len(line) > 140]


def test_the_picture_equals_its_commands_output(strata):
    command, = re.findall(r"^(strata schedule show .*) > (\S+)$", text("README.md"), re.MULTILINE)
    drawn = call([strata, *shlex.split(command[0])[1:]])
    assert drawn == text(f"examples/{command[1]}") and len(drawn) <= 40_000
    assert f"](examples/{command[1]})" in text("README.md")


def test_the_picture_has_the_idle_times_of_the_page():
    idle = re.search(r"`1f1b` leaves ([0-9.]+ %).*?`zero_bubble_v` ([0-9.]+ %)", text("README.md"), re.DOTALL)
    assert re.findall(r"bubble ([0-9.]+ %)", text("examples/schedules.svg")) == list(idle.groups())


def test_every_plugin_is_in_the_table():
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([^|]+) \|$", text("configs/README.md").split("## Plugins")[1].split("\n## ")[0], re.MULTILINE)
    table = {kind: set(re.findall(r"`(\w+)`", names)) for kind, names in rows if kind != "kind"}
    folders = [path.parent for path in (REPOSITORY / "plugins").glob("*/*/CMakeLists.txt")]
    assert table == {kind: {folder.name for folder in folders if folder.parent.name == kind} for kind in {folder.parent.name for folder in folders}}


@pytest.mark.parametrize("page", ["README.md", "BENCHMARKS.md"])
def test_named_tests_and_programs_exist(page):
    lists = "\n".join(path.read_text() for path in (REPOSITORY / "tests").rglob("CMakeLists.txt"))
    tests = set(re.findall(r"(?:strata_add_pytest\(|add_test\(NAME )(\w+)", lists))
    labels = set(re.findall(r"LABELS \"?(\w+)", lists))
    assert not [name for name in re.findall(r"-R '?\^?(\w+)", text(page)) if name not in tests]
    assert not [name for name in re.findall(r"-L (\w+)", text(page)) if name not in labels]
    assert not [name for name in re.findall(r"\btests/[\w/]+\.(?:py|sh)", text(page)) if not (REPOSITORY / name).exists()]
