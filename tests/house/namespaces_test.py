"""The namespace of a source is its folder: strata::ROOM in the engine; strata::cli or the folder's name in the tools; strata in the interface."""
import re

import pytest

from place import REPOSITORY as ROOT

# What C++ programs use, which has the interface's namespace.
OF_PROGRAMS = "core/engine/run/include/"
SHARED = {"core/engine/run": {"strata"}, "core/tools/deepspeed": {"strata"}}
# Specializations and declarations ahead that must stand in somebody else's.
OTHERS = {"c10d", "CLI", "std", "fmt"}


def sources():
    return [path for path in sorted((ROOT / "core").rglob("*")) if path.suffix in (".cpp", ".hpp")]


def namespaces(text):
    """The namespaces that hold more than declarations of classes. Those that do end in `}  // namespace NAME`."""
    open_ones, found, only_classes = [], set(), False
    for line in text.splitlines():
        if opened := re.fullmatch(r"namespace ([\w:]+) \{", line):
            open_ones.append(opened.group(1))
        elif open_ones and line == f"}}  // namespace {open_ones[-1]}":
            found.add("::".join(open_ones))
            open_ones.pop()
        elif line == "}" and only_classes:
            open_ones.pop()
        only_classes = bool(re.fullmatch(r"namespace [\w:]+ \{|(?:class|struct|enum class) \w+;", line))
    return found


def allowed(name):
    parts = name.split("/")
    if parts[1] == "interface" or name.startswith(OF_PROGRAMS):
        return {"strata"}
    if parts[1] == "engine":
        return {f"strata::{parts[2]}"} | SHARED.get("/".join(parts[:3]), set())
    return {"strata::cli", f"strata::{parts[2]}"} | SHARED.get("/".join(parts[:3]), set())


def wrong(name, text):
    return [space for space in sorted(namespaces(text)) if space not in OTHERS and not any((space + "::").startswith(one + "::") for one in allowed(name))]


@pytest.mark.parametrize("folder", ["core/interface", "core/engine", "core/tools"])
def test_a_namespace_is_its_folder(folder):
    names = [str(path.relative_to(ROOT)) for path in sources()]
    names = [name for name in names if name.startswith(folder + "/")]
    assert len(names) > 30
    assert not [f"{name}: {space}" for name in names for space in wrong(name, (ROOT / name).read_text())]


@pytest.mark.parametrize("name, space", [("core/engine/step/update.cpp", "strata::stage"), ("core/engine/data/loader.hpp", "strata"),
                                         ("core/tools/plan/main.cpp", "strata::verify")])
def test_a_wrong_namespace_is_seen(name, space):
    assert wrong(name, f"namespace {space} {{\nint number();\n}}  // namespace {space}\n") == [space]
