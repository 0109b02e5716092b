"""tests/unit mirrors the source, so that whoever looks for the test of core/engine/X/y.cpp finds it at tests/unit/X/y_test.cpp."""
from place import REPOSITORY as ROOT

UNIT = ROOT / "tests/unit"
# cuda: the kernels of plugins/device/cuda and what else needs a GPU.
EXCEPTIONS = {"cuda"}


def folders(path):
    return {entry.name for entry in (ROOT / path).iterdir() if entry.is_dir()}


def mirrored():
    """Folders of tests/unit that have a counterpart: interface, a room of the engine, a folder of sdk, a kind of plugin, a folder of core/tools."""
    return {"interface"} | folders("core/engine") | folders("sdk") | folders("plugins") | EXCEPTIONS | {f"tools/{name}" for name in folders("core/tools")}


def misplaced(names, known):
    """Sources in a folder without a counterpart; what planted/ holds belongs to the folder above."""
    parents = {name: name.rsplit("/", 1)[0].removesuffix("/planted") for name in names}
    return [name for name, parent in parents.items() if parent not in known]


def misnamed(texts):
    """Files that have a case and do not end in _test.cpp, or the other way round. Helpers have none: headers, planted plugins, programs
    that tests start."""
    return [name for name, text in texts.items() if ("\nTEST_CASE" in text) != name.endswith("_test.cpp")]


def sources():
    return {str(path.relative_to(UNIT)): path.read_text() for path in sorted(UNIT.rglob("*")) if path.suffix in (".cpp", ".hpp")}


def test_folders_are_those_of_the_source():
    assert not misplaced(sources(), mirrored())


def test_tests_are_named_so():
    assert not misnamed(sources())


def test_a_stray_file_is_seen():
    assert misplaced(["reports/table_test.cpp", "table_test.cpp", "tools/report/x_test.cpp"], mirrored()) == [
        "reports/table_test.cpp", "table_test.cpp", "tools/report/x_test.cpp"]
    assert misplaced(["text/table_test.cpp", "tools/plugins/planted/marks.cpp"], mirrored()) == []
    assert misnamed({"text/test_table.cpp": "\nTEST_CASE(", "text/table.hpp": "", "text/empty_test.cpp": ""}) == [
        "text/test_table.cpp", "text/empty_test.cpp"]
