"""Plugins and a host built by different compilers: each loads and computes the same, or is refused with the reason.

The installed tree is of a Strata built by g++; the example plugins were built against it by g++ (tests/install). clang++ builds the example
plugins against that Strata: their losses are g++'s, bit for bit; a UserError that one throws is known as such; one with clang's OpenMP,
which brings a second run-time library, computes the same. In host_test.py clang++ builds Strata too. Skipped where there is no clang++.
"""
import json
import shutil
import subprocess

import pytest
from commands import call, run, told
from two_compilers import EXAMPLES, library_in


@pytest.fixture(scope="module")
def clang_plugin(repository, prefix, clang, bench):
    """A function: the build folder of an example's plugin by clang++."""
    builds = {name: bench.build(repository / "examples/plugins" / name, f"clang-{name}", prefix, clang) for name in EXAMPLES}
    return builds.get


def test_compiler_is_named(prefix, installed, clang_plugin):
    for plugins, compiler in ((clang_plugin("round_robin"), "clang"), (installed / "round_robin-build", "gcc")):
        found = json.loads(call([prefix / "bin/strata", "plugins", "show", library_in(plugins), "--format", "json"]))["compiler"]
        assert found.startswith(compiler)


@pytest.mark.parametrize("name", EXAMPLES)
def test_losses(prefix, installed, bench, clang_plugin, name):
    strata = prefix / "bin/strata"
    assert bench.losses(strata, installed / f"{name}-build", EXAMPLES[name]) == bench.losses(strata, clang_plugin(name), EXAMPLES[name])


def test_user_error(prefix, clang_plugin):
    """UserError is 2; an exception that is not recognized would be an internal error, 70."""
    schedule = library_in(clang_plugin("breadth_first"))
    done = run([prefix / "bin/strata", "schedule", "show", schedule, "--stages", "2", "--chunks", "2", "--micro-batches", "4"])
    assert done.returncode == 2 and "one chunk per stage" in done.stderr, told(done)


def test_openmp(repository, prefix, clang, bench):
    """at::parallel_for compiled into a plugin runs on clang's threads, beside those of the toolbox and of libtorch, which are GCC's."""
    source = bench.work / "openmp.cpp"
    source.write_text("#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
    if subprocess.run([clang, "-fopenmp", source, "-o", bench.work / "openmp"], capture_output=True).returncode != 0:
        pytest.skip("clang++ has no OpenMP here (Debian: libomp-dev)")
    project = bench.work / "sgd"
    shutil.copytree(repository / "plugins/optimizer/sgd", project)
    text = (project / "CMakeLists.txt").read_text()
    (project / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(sgd LANGUAGES CXX)\nfind_package(Strata REQUIRED)\n{text}")
    plugins = bench.build(project, "clang-sgd", prefix, clang, "-DCMAKE_CXX_FLAGS=-fopenmp")
    assert "libomp" in call(["readelf", "-d", library_in(plugins)]), "the plugin does not need libomp: nothing is tested"
    settings = ["optimizer.plugin=sgd", "optimizer.momentum=0.9"]
    strata = prefix / "bin/strata"
    assert bench.losses(strata, prefix / "lib/strata/plugins", settings) == bench.losses(strata, plugins, settings)
