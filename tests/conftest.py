"""Shared by all tests in Python: the build that is tested, folders that are removed, token files, the engine.

  pytest tests/faults -k stopped                   # the build in build/release
  STRATA_BUILD=build/debug pytest tests/plan       # another build folder
  STRATA=/usr/bin/strata pytest tests/messages     # another program
  pytest tests/memory --full                       # also what takes long

ctest runs each file of tests by the name that its CMakeLists.txt gives it. loaded_programs.py says how commands of `strata` are run.
"""
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
pytest.register_assert_rewrite("commands")
import loaded_programs  # noqa: E402
from commands import check_every_output  # noqa: E402
from engine import Engine, built_plugins, write_tokens  # noqa: E402
from place import REPOSITORY, build_folder, program  # noqa: E402
from trainers import Trainers  # noqa: E402

check_every_output()
loaded_programs.begin()
SKIPPED = 77  # the exit status that ctest counts as skipped


# --- what runs -------------------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also the tests marked full, which take long")
    parser.addoption("--seed", type=int, default=1, help="of what tests draw at random")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


def pytest_sessionfinish(session, exitstatus):
    """When all that ran was skipped, ctest is to count it as skipped."""
    counts = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus in (0, 5) and counts.get("skipped") and not counts.get("passed"):
        session.exitstatus = SKIPPED


@pytest.fixture(scope="session")
def seed(request):
    return request.config.getoption("--seed")


# --- where things are ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def build():
    """The build folder."""
    folder = build_folder()
    assert (folder / "CMakeCache.txt").exists(), f"{folder} is no build folder: build, or name one in STRATA_BUILD"
    return folder


@pytest.fixture(scope="session")
def strata():
    """The path of the program."""
    path = program()
    assert os.access(path, os.X_OK), f"there is no program {path}: build it, or name another in STRATA"
    return path


@pytest.fixture(scope="session")
def plugins(build):
    """The folder of the plugins that were built."""
    return build / "lib/strata/plugins"


@pytest.fixture(scope="session")
def installed(build):
    """The folder with the tree that the test `install` installs, and the builds of the example projects against it."""
    folder = build / "installed"
    if not (folder / "moved here/bin/strata").exists():
        pytest.fail(f"{folder} holds no installed tree: run ctest -R '^install$' first")
    return folder


@pytest.fixture(scope="session")
def prefix(installed):
    """The installed tree itself."""
    return installed / "moved here"


@pytest.fixture(scope="session")
def setting_of_build(build):
    """A function: the value of a variable of the build's CMakeCache.txt, or None."""
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "//")))
    return {name.split(":")[0]: value for name, value in values.items()}.get


@pytest.fixture(scope="session")
def compile_environment(build, setting_of_build):
    """For cmake: the compiler of the build, and how the build calls it."""
    launcher = setting_of_build("CMAKE_CXX_COMPILER_LAUNCHER") or build / "call_compiler"
    return {**os.environ, "CXX": setting_of_build("CMAKE_CXX_COMPILER"), "CMAKE_CXX_COMPILER_LAUNCHER": str(launcher)}


@pytest.fixture(scope="session")
def torch(build):
    """libtorch's folder."""
    return pathlib.Path((build / "share/strata/torch_dir").read_text().strip())


# --- folders and files -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def remove_folders(request, tmp_path_factory):
    """Removes what tests wrote, unless one failed."""
    base = tmp_path_factory.getbasetemp()
    yield
    if not request.session.testsfailed:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for the tests of a file; `tmp_path` is one for a test."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def tokens(folder):
    """A token file of 20000 tokens, of which there are 257."""
    write_tokens(folder / "tokens.bin")
    return folder / "tokens.bin"


@pytest.fixture(scope="module")
def engine(strata, plugins, folder):
    """The program with the plugins that were built."""
    return Engine(strata, [plugins], folder)


@pytest.fixture(scope="module")
def in_threads(build, engine):
    """Runs of the same with ranks that are threads: trainers.py says what they leave out."""
    return Trainers(build / "bin/matrix_trainer", engine)


@pytest.fixture(scope="module")
def engine_with_projects(strata, plugins, installed, folder):
    """The same, and the plugins of the example projects."""
    return Engine(strata, [plugins] + built_plugins(str(installed)), folder)
