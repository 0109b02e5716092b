"""Who may include whom: plugins -> sdk/toolbox -> core/interface <- core, and inside core only downwards."""
import re
import subprocess

import pytest

from place import REPOSITORY as ROOT

# A folder includes itself and what stands before it. core/README.md draws the same.
ORDER = ["interface", "text", "config", "plugin_host", "program", "group", "data", "state", "step", "checkpoint", "run", "tools"]
CUDA_FOLDERS = ("plugins/device/cuda/", "plugins/communicator/nccl/", "tests/")
C10D_FOLDERS = ("core/group/", "core/interface/include/strata/communicator.hpp", "plugins/communicator/", "sdk/toolbox/", "sdk/fakes/",
                "sdk/conformance/communicator/", "sdk/conformance/planted/communicator/", "sdk/template/communicator/", "tests/")


def sources(*folders):
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return [str(path.relative_to(ROOT)) for path in files if path.suffix in (".cpp", ".hpp", ".cu", ".cuh") and "build" not in path.parts[len(ROOT.parts):]]


def includes(name):
    for line in (ROOT / name).read_text().splitlines():
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield found.group(1), found.group(2)


def upward(name, included):
    """The folder that a file of core may not look into, or None."""
    mine, theirs = name.split("/")[1], included.split("/")[0]
    if theirs not in ORDER:
        return None
    return theirs if ORDER.index(theirs) > ORDER.index(mine) else None


def test_every_folder_of_core_has_a_place_in_the_order():
    assert {name.split("/")[1] for name in sources("core")} == set(ORDER)


def test_core_includes_downwards():
    wrong = [f"{name} includes {included}: {upward(name, included)} stands above {name.split('/')[1]}"
             for name in sources("core") for quote, included in includes(name) if quote == '"' and upward(name, included)]
    assert not wrong, "\n".join(wrong)


def test_an_upward_arrow_is_seen():
    assert upward("core/config/tree.cpp", "run/engine.hpp") == "run"
    assert upward("core/run/engine.cpp", "config/tree.hpp") is None


def test_plugins_include_the_sdk_only():
    folders = {entry.name for entry in (ROOT / "core").iterdir() if entry.is_dir()}
    wrong = [f"{name} includes {included}" for name in sources("plugins", "sdk/toolbox", "sdk/template", "examples/plugins")
             for quote, included in includes(name)
             if quote == '"' and (included.startswith("..") or (included.split("/")[0] in folders and not (ROOT / name).parent.joinpath(included).exists()))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("pattern, allowed", [(r"cuda|nccl|c10/cuda|ATen/cuda", CUDA_FOLDERS), (r"torch/csrc/distributed", C10D_FOLDERS)],
                         ids=["CUDA", "c10d"])
def test_headers_stay_in_their_plugins(pattern, allowed):
    wrong = [f"{name} includes {included}" for name in sources("core", "sdk", "plugins", "examples", "tests") for quote, included in includes(name)
             if quote == "<" and re.match(pattern, included) and not name.startswith(allowed) and "/cuda" not in name]
    assert not wrong, "\n".join(wrong)


def test_the_core_names_no_plugin():
    # `cpu` and `cuda` are libtorch's names of device types; `sequential` is an order of samples too.
    names = {path.parent.name for path in ROOT.glob("plugins/*/*/CMakeLists.txt")} - {"cpu", "cuda", "sequential"}
    quoted = re.compile('"(?:' + "|".join(sorted(map(re.escape, names))) + ')"')
    wrong = [f"{name}:{number}: {line.strip()}" for name in sources("core")
             for number, line in enumerate((ROOT / name).read_text().splitlines(), 1) if quoted.search(line.split("//")[0])]
    assert not wrong, "\n".join(wrong)


def symbols(library):
    """The functions and variables that a library or an archive defines once, so without inline ones."""
    listed = subprocess.run(["nm", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in listed.splitlines() if re.match(r"[0-9a-f]+ [TBD] _Z", line)}


def test_the_engine_holds_no_tool(build):
    engine, tools = symbols(build / "lib/libstrata.so"), symbols(build / "core/libstrata_tools.a")
    assert len(engine) > 100 and len(tools) > 100
    assert not engine & tools
    for library in ("lib/libstrata_dry_run.so", "lib/libstrata_deepspeed.so", "lib/libstrata_auto_offload.so"):
        assert not engine & symbols(build / library)
