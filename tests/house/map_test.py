"""The maps name files that exist, and every folder of the core has its five lines."""
import re

import pytest

from place import REPOSITORY as ROOT

MAPS = [path.relative_to(ROOT) for path in [ROOT / "core/README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("core/**/README.md")),
                                               *sorted(ROOT.glob("sdk/*/README.md"))]]
TOP = {"core", "plugins", "sdk", "configs", "examples", "tests", "cmake"}


def named_paths(text):
    """What stands in backticks and is a path in this tree."""
    first = TOP | {folder.name for place in ("core", "core/engine") for folder in (ROOT / place).iterdir() if folder.is_dir()}
    for word in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w./*-]+", word) and (word.split("/")[0] in first if "/" in word else word.endswith((".cpp", ".hpp", ".py"))):
            yield word


@pytest.mark.parametrize("page", MAPS, ids=str)
def test_named_files_exist(page):
    folders = [ROOT, ROOT / "core", ROOT / "core/engine", (ROOT / page).parent, ROOT / "core/interface"]
    missing = [word for word in named_paths((ROOT / page).read_text())
               if not any(list(folder.glob(word.rstrip("/"))) for folder in folders)]
    assert not missing


PAGES = [path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(path for top in sorted(TOP) for path in sorted((ROOT / top).rglob("*.md")))]
         if "build" not in path.parts[len(ROOT.parts):]]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    assert not [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()]


def test_a_missing_file_is_seen():
    assert list(named_paths("see `step/executor.cpp`, `Engine` and `a b`")) == ["step/executor.cpp"]
    assert not list((ROOT / "core/engine").glob("step/there_is_no_such.cpp"))


def test_every_room_has_a_description():
    rooms = [ROOT / "core/interface", ROOT / "core/tools", *(folder for folder in (ROOT / "core/engine").iterdir() if folder.is_dir())]
    assert not [room.name for room in rooms if not (room / "README.md").exists()]
