"""The headers that plugins and core share are those of the recorded ABI number, and every change of one is noticed (interface_layout.py)."""
import os
import re
import shutil

import pytest
from commands import call, run
from interface_layout import HEADERS, RECORD, ROOT, Interface


@pytest.fixture
def interface(tmp_path):
    """A copy that may be changed."""
    shutil.copytree(os.path.join(ROOT, HEADERS), tmp_path / HEADERS)
    shutil.copy(os.path.join(ROOT, RECORD), tmp_path / RECORD)
    return Interface(tmp_path)


def problem_with(interface, name, content):
    """What is said of a header with this content, which is put back."""
    original, path = interface.read(name), os.path.join(interface.headers, name)
    with open(path, "w") as file:
        file.write(content)
    problem = interface.problem()
    with open(path, "w") as file:
        file.write(original)
    return problem


def test_headers_are_as_recorded():
    assert not Interface(ROOT).problem()


@pytest.mark.parametrize("name", sorted(os.listdir(os.path.join(ROOT, HEADERS))))
def test_change_of_a_header(interface, name):
    """A field or a virtual function more counts, in every struct and class; comments and white space do not."""
    original = interface.read(name)
    assert not problem_with(interface, name, original + "// a comment\n\n/* and another: int field; */\n")
    assert not problem_with(interface, name, original.replace("\n", "\r\n").replace("  ", "\t "))
    for kind in re.finditer(r"(?:struct|class) [\w ]*?(\w+)(?: final)?(?: : [^{;]*)? \{\n", original):
        for what in ("int planted = 0;\n", "virtual void planted();\n"):
            problem = problem_with(interface, name, original[:kind.end()] + what + original[kind.end():])
            assert problem and name in problem, f"{kind[1]} with {what.strip()}"


def test_enough_is_changed(interface):
    kinds = sum(len(re.findall(r"(?:struct|class) [\w ]*?\w+(?: final)?(?: : [^{;]*)? \{\n", interface.read(name))) for name in interface.digests())
    assert kinds >= 50


def test_another_type(interface):
    problem = problem_with(interface, "group.hpp", interface.read("group.hpp").replace("int ", "long ", 1))
    assert problem and "group.hpp" in problem


def test_raise(interface):
    interface.raise_number()  # nothing has changed
    major, minor = interface.number()
    with open(os.path.join(interface.headers, "mesh.hpp"), "a") as file:
        file.write("struct Planted { int field; };\n")
    interface.raise_number()
    assert not interface.problem() and interface.number() == (major, minor + 1)


def test_short_enums_are_refused(tmp_path, compile_environment, torch):
    """Whose types have another layout, of which no manifest tells."""
    source = tmp_path / "plugin.cpp"
    source.write_text("#include <strata/fingerprint.hpp>\n")
    command = [compile_environment["CXX"], "-std=c++20", "-fsyntax-only", "-I", os.path.dirname(os.path.join(ROOT, HEADERS)), "-I", torch / "include", source]
    call(command)
    refused = run([*command, "-fshort-enums"])
    assert refused.returncode != 0 and "compiled with -fshort-enums" in refused.stderr
