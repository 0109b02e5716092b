"""The plugins of this tree need nothing of core/ but what the SDK installs.

plugins/ is copied and made a project of its own that knows Strata by find_package(Strata) in the installed tree and by nothing else. Of
every source the compiler says which headers it reads: each of Strata's is to be an installed one, none may lie in the repository. Then
plugins are built, one that needs the toolbox and one of plain sources, with --full every one but NCCL's; `strata plugins list` is to take
what was built for those plugins, and with --full a run trains on them.
"""
import json
import os
import pathlib
import shlex
import shutil

import pytest
from commands import call

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(plugins_of_the_tree LANGUAGES CXX)
include(GNUInstallDirs)
find_package(Strata REQUIRED)
set(STRATA_CUDA OFF)
add_subdirectory(plugins)
"""
SAMPLE = ("partitioner/zero3", "scheduler/1f1b")
FOLDERS = ("core", "sdk", "plugins", "tests", "cmake", "examples")  # of the repository: nothing in them may be read


@pytest.fixture(scope="module")
def project(repository, prefix, compile_environment, folder):
    """The build folder of plugins/ as a project of its own."""
    shutil.copytree(repository / "plugins", folder / "plugins")
    (folder / "CMakeLists.txt").write_text(PROJECT)
    call(["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
          f"-DCMAKE_PREFIX_PATH={prefix}"], env=compile_environment)
    return folder / "build"


@pytest.fixture(scope="module")
def built(request, repository, project, compile_environment):
    """KIND/NAME of the plugins that were built there."""
    names = [f"{path.parent.parent.name}/{path.parent.name}" for path in repository.glob("plugins/*/*/CMakeLists.txt")]
    everything = request.config.getoption("--full")
    targets = [] if everything else ["--target", *("strata_" + name.replace("/", "_") for name in SAMPLE)]
    call(["cmake", "--build", project, "--parallel", "1", *targets], env=compile_environment, timeout=3600)
    return sorted(name for name in names if (name != "communicator/nccl" if everything else name in SAMPLE))


def headers_of(entry):
    """What the compiler reads for one entry of compile_commands.json, found by its preprocessor."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    rule = call(words[:at] + words[at + 2:] + ["-M", "-MT", "x"], cwd=entry["directory"])
    names = shlex.split(rule.replace("\\\n", " "))[1:]
    return [pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"]) / name)) for name in names]


def test_headers(repository, prefix, project):
    hidden = [repository / name for name in FOLDERS]
    entries = json.loads((project / "compile_commands.json").read_text())
    problems, installed = [], set()
    for entry in entries:
        for header in headers_of(entry):
            if any(header.is_relative_to(folder) for folder in hidden):
                problems.append(f"{entry['file']} reads {header}")
            elif header.parent.is_relative_to(prefix / "include/strata"):
                installed.add(header)
    assert not problems, "the source tree is read"
    assert entries and installed, f"{len(entries)} sources read {len(installed)} installed headers: nothing was looked at"


def test_built_plugins_are_listed(prefix, project, built):
    """What was built is what is found under its name, before what is installed."""
    place = project / "lib/strata/plugins"
    listed = json.loads(call([prefix / "bin/strata", "plugins", "list", "--format", "json"], env={**os.environ, "STRATA_PLUGIN_PATH": str(place)}))
    files = {entry["plugin"]: entry["file"] for entry in listed if pathlib.Path(entry["file"]).parent == place}
    assert sorted(files) == built
    assert not [entry for entry in listed if entry["plugin"] in files and entry["file"] == files[entry["plugin"]]
                and (entry.get("problem") or entry.get("shadowed_by"))]


@pytest.mark.full
def test_training_on_built_plugins(prefix, project, built, folder, tokens):
    config = {"device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 32, "gpt_neox": {"hidden_size": 32, "layers": 2, "heads": 2, "vocabulary": 257}},
              "data": {"path": str(tokens)}, "train": {"steps": 3, "micro_batch": 2, "global_batch": 8}, "learning_rate": {"base": 1e-2},
              "parallel": {"pipeline": 2}, "scheduler": {"plugin": "1f1b"}, "partitioner": {"plugin": "zero3"}}
    (folder / "train.json").write_text(json.dumps(config))
    losses = {}
    for name, place in (("installed", prefix / "lib/strata/plugins"), ("built here", project / "lib/strata/plugins")):
        call([prefix / "bin/strata", "train", folder / "train.json", "--nproc", "4", "--quiet", "--summary", folder / "summary.json"],
             env={**os.environ, "STRATA_PLUGIN_PATH": str(place), "OMP_NUM_THREADS": "1"})
        losses[name] = json.loads((folder / "summary.json").read_text())["losses"]
    assert losses["installed"] and losses["installed"] == losses["built here"]
