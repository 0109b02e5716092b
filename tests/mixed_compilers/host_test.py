"""A Strata built by clang++: in it run the plugins that g++ built for g++'s Strata, those that clang++ built for it, those that g++ builds
against clang++'s SDK, and all of g++'s own. The plugins of the examples have g++'s losses, bit for bit. Building takes a quarter of an
hour; skipped where there is no clang++."""
import shutil

import pytest
from commands import call
from two_compilers import EXAMPLES


@pytest.fixture(scope="module")
def host(repository, torch, build, clang, compile_environment):
    """Where clang++'s Strata is installed. Its build folder is kept."""
    environment = {name: value for name, value in compile_environment.items() if name != "CXX"}
    kept = build / "mixed_compilers"
    call(["cmake", "-S", repository, "-B", kept / "strata", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={clang}",
          "-DSTRATA_BUILD_TESTS=OFF", "-DSTRATA_CUDA=OFF", f"-DSTRATA_TORCH_DIR={torch}"], env=environment)
    call(["cmake", "--build", kept / "strata", "--parallel", "1"], env=environment, timeout=7200)
    call(["cmake", "--install", kept / "strata", "--prefix", kept / "host"])
    return kept / "host"


@pytest.mark.parametrize("name", EXAMPLES)
def test_losses(repository, prefix, installed, host, clang, bench, name):
    source, settings = repository / "examples/plugins" / name, EXAMPLES[name]
    reference = bench.losses(prefix / "bin/strata", installed / f"{name}-build", settings)
    strata = host / "bin/strata"
    assert bench.losses(strata, installed / f"{name}-build", settings) == reference, "the same file"
    assert bench.losses(strata, bench.build(source, f"clang-{name}", host, clang), settings) == reference, "clang++'s plugin"
    assert bench.losses(strata, bench.build(source, f"gcc-{name}", host, shutil.which("g++")), settings) == reference, "g++'s plugin of clang++'s SDK"


def test_all_plugins(prefix, host, bench):
    settings = ["partitioner.plugin=zero3", "precision.plugin=bf16"]
    own, others = (bench.losses(host / "bin/strata", tree / "lib/strata/plugins", settings) for tree in (host, prefix))
    # Two compilers may contract or reorder what a loop adds up; the rest is libtorch's.
    assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(own, others, strict=True)), f"{own} and {others}"
