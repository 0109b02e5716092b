"""tests/changed.py: every folder of the source has tests, and a changed file chooses those of its folder."""
import json
import pathlib
import re
import subprocess

import pytest
from place import REPOSITORY, build_folder

import changed


def folders_of_tests():
    """Folders of tests, below tests/."""
    return {str(path.parent.relative_to(REPOSITORY / "tests")) for path in (REPOSITORY / "tests").rglob("CMakeLists.txt")}


def source_folders():
    sources = [path.relative_to(REPOSITORY) for top in ("core", "sdk", "plugins") for path in (REPOSITORY / top).rglob("*.cpp")]
    return sorted({"/".join(path.parent.parts[:3]) for path in sources})


@pytest.mark.parametrize("folder", source_folders())
def test_every_source_folder_has_tests(folder):
    assert changed.folders_of([f"{folder}/a.cpp"]) & folders_of_tests()


@pytest.mark.parametrize("name, folder", [
    ("core/engine/step/update.cpp", "unit/run"), ("core/interface/src/state_store.cpp", "unit/interface"), ("plugins/optimizer/adamw/adamw.cpp", "unit/optimizer"),
    ("tests/unit/tools/plan/model_shape_test.cpp", "unit/tools/plan"), ("tests/memory/memory_test.py", "memory"), ("configs/quickstart.yaml", "readme"),
    ("core/tools/verify/main.cpp", "verify"), ("README.md", "readme")])
def test_a_changed_file_chooses_its_folder(name, folder):
    assert folder in changed.folders_of([name])
    assert folder in folders_of_tests()


def listed(*tests):
    return {"tests": [{"name": name, "command": [program], "properties": [{"name": "WORKING_DIRECTORY", "value": f"/build/tests/{folder}"},
                                                                          {"name": "LABELS", "value": labels}]}
                      for name, folder, labels, program in tests]}


def test_quick_tests_are_always_chosen_and_long_ones_never():
    tests = listed(("a", "unit/text", ["unit", "quick"], "/build/bin/a"), ("b", "unit/run", ["unit"], "/build/bin/b"), ("c", "unit/run", ["full"], "/build/bin/b"))
    assert set(changed.chosen(tests, pathlib.Path("/build"), set())) == {"a"}
    assert set(changed.chosen(tests, pathlib.Path("/build"), {"unit/run"})) == {"a", "b"}


def test_tests_in_python_need_everything():
    build = pathlib.Path("/build")
    assert changed.targets_of(["/build/bin/a", "/build/bin/b"], build) == ["bin/a", "bin/b"]
    assert changed.targets_of(["/build/bin/a", "/usr/bin/python3"], build) == ["all"]


def test_the_list_of_ctest_is_understood():
    text = subprocess.run(["ctest", "--test-dir", build_folder(), "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    tests = changed.chosen(json.loads(text), build_folder().resolve(), {"memory"})
    assert {"memory", "two_ranks", "test_text"} <= set(tests)
    assert not [name for name in tests if re.search("_full$", name)]
