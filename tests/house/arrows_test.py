"""Who may include whom: interface <- engine <- tools, interface <- toolbox <- plugins, engine <- fakes and conformance. A folder that has no place
in these lists fails, wherever it lies in core, sdk or plugins."""
import re
import subprocess

import pytest

from place import REPOSITORY as ROOT

# Each room includes itself and the rooms before it. core/README.md draws the same.
ENGINE = ["text", "config", "plugins", "program", "group", "data", "memory", "state", "stage", "step", "checkpoint", "resolve", "plan", "report", "run"]
TOOLS = ["version", "launcher", "ranks", "command", "plugins", "checkpoint", "doctor", "launch", "train", "eval", "config", "chosen", "tokenizer", "deepspeed", "compare", "schedule", "data"]
ORDER = ["core/interface", "sdk/toolbox", *(f"core/engine/{room}" for room in ENGINE), "sdk/fakes", "sdk/conformance",
         *(f"core/tools/{room}" for room in TOOLS), "core/tools"]
# Besides, a room of the left may include only what the right names.
ONLY = {"sdk/toolbox": ("core/interface",), "sdk/fakes": ("core/interface",), "sdk/template": ("core/interface", "sdk/toolbox", "sdk/fakes"),
        "plugins": ("core/interface", "sdk/toolbox"), "core/engine": ("core/interface", "core/engine"),
        "sdk/conformance": ("core/interface", "core/engine", "sdk/fakes")}
# Folders of programs that no other folder includes, and which need no place in the order.
LEAVES = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("core/tools/*/CMakeLists.txt") if "strata_add_program(" in path.read_text()} - set(ORDER)
ROOTS = ("core/engine/", "core/", "sdk/", "sdk/toolbox/include/", "sdk/fakes/include/", "core/interface/include/", "core/engine/run/include/",
         "core/tools/deepspeed/include/")
CUDA_FOLDERS = ("plugins/device/cuda/", "plugins/communicator/nccl/", "tests/")
C10D_FOLDERS = ("core/engine/group/", "core/interface/include/strata/communicator.hpp", "plugins/communicator/", "sdk/toolbox/", "sdk/fakes/",
                "sdk/conformance/communicator/", "sdk/template/communicator/", "tests/")


def sources(*folders):
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
    return [str(path.relative_to(ROOT)) for path in files if path.suffix in (".cpp", ".hpp", ".cu", ".cuh") and "build" not in path.parts[len(ROOT.parts):]]


def includes(name):
    for line in (ROOT / name).read_text().splitlines():
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield found.group(1), found.group(2)


def room_of(name):
    """The room of a file, "core/engine/step"; of a plugin its folder, "plugins/optimizer/adamw"."""
    parts = name.split("/")
    if name.startswith(("core/engine/", "core/tools/")):
        return "/".join(parts[:3] if len(parts) > 3 else parts[:2])
    return "/".join(parts[:3] if parts[0] == "plugins" else parts[:2])


def included_file(name, text):
    """The file of this tree that an include means, or None for another one."""
    beside = (ROOT / name).parent / text
    candidates = [beside, *(ROOT / root / text for root in ROOTS)]
    return next((str(path.resolve().relative_to(ROOT)) for path in candidates if path.is_file() and path.resolve().is_relative_to(ROOT)), None)


def wrong_arrow(mine, theirs):
    """Why a file of the room `mine` may not include one of `theirs`, or None."""
    if mine == theirs:
        return None
    for room, allowed in ONLY.items():
        if (mine + "/").startswith(room + "/") and not (theirs + "/").startswith(tuple(f"{folder}/" for folder in allowed)):
            return f"{room} includes only {', '.join(allowed)}"
    if mine in ORDER and theirs in ORDER and ORDER.index(theirs) > ORDER.index(mine):
        return f"{theirs} stands above {mine}"
    if theirs in LEAVES:
        return f"{theirs} is a program by itself; code of several programs stands in a room of ORDER"
    return None


def wrong_arrows(names):
    for name in names:
        for _, text in includes(name):
            target = included_file(name, text)
            if target and (reason := wrong_arrow(room_of(name), room_of(target))):
                yield f"{name} includes {target}: {reason}"


def test_every_folder_has_a_place():
    rooms = {room_of(name) for name in sources("core", "sdk", "plugins")}
    known = set(ORDER) | LEAVES | {"sdk/template"} | {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("plugins/*/*/CMakeLists.txt")}
    assert rooms == known


def test_includes_follow_the_order():
    assert not list(wrong_arrows(sources("core", "sdk", "plugins", "examples/plugins")))


def test_no_include_leaves_its_folder_upwards():
    assert not [f"{name} includes {text}" for name in sources("core", "sdk", "plugins", "examples") for _, text in includes(name) if text.startswith("..")]


def test_an_include_means_one_file():
    """No two files can be named by one text, so that the order of include folders decides nothing."""
    names = {}
    for root in ROOTS:
        for path in (ROOT / root).rglob("*.hpp"):
            text = str(path.relative_to(ROOT / root))
            if not any(text.startswith(other[len(root):]) for other in ROOTS if other != root and other.startswith(root)):
                names.setdefault(text, set()).add(str(path.resolve()))
    assert not {text: paths for text, paths in names.items() if len(paths) > 1}


@pytest.mark.parametrize("mine, theirs", [("core/engine/config", "core/engine/run"), ("core/engine/run", "core/tools/train"),
                                          ("plugins/optimizer/adamw", "core/engine/text"), ("sdk/toolbox", "core/engine/text"),
                                          ("core/tools/ranks", "core/tools/train"), ("sdk/conformance", "core/tools/ranks"),
                                          ("core/tools/compare", "core/tools/verify")])
def test_a_wrong_arrow_is_seen(mine, theirs):
    assert wrong_arrow(mine, theirs)
    assert not wrong_arrow(theirs, "core/interface")


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
    wrong = [f"{name}:{number}: {line.strip()}" for name in sources("core") if not name.startswith("core/tools/deepspeed/")  # translates names
             for number, line in enumerate((ROOT / name).read_text().splitlines(), 1) if quoted.search(line.split("//")[0])]
    assert not wrong, "\n".join(wrong)


def symbols(library):
    """The functions and variables that a library or an archive defines once, so without inline ones."""
    listed = subprocess.run(["nm", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in listed.splitlines() if re.match(r"[0-9a-f]+ [TBD] _Z", line)}


def test_the_engine_holds_no_tool(build):
    engine, tools = symbols(build / "lib/libstrata.so"), symbols(build / "core/tools/libstrata_tools.a")
    assert len(engine) > 100 and len(tools) > 100
    assert not engine & tools
    assert not engine & symbols(build / "lib/libstrata_deepspeed.so")
