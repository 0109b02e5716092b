#!/usr/bin/env python3
"""Plugins and a host built by different compilers: each loads and computes the same, or is refused with the reason.

compilers.py --installed DIR --source SOURCE --torch DIR --work DIR [--host]

DIR/moved here holds a Strata built by g++, DIR/NAME-build the example plugins that g++ built against it (tests/install).
  always   clang++ builds the example plugins against that Strata: their losses are g++'s, bit for bit; a UserError that one throws is
           known as such; one with clang's OpenMP, which brings a second run-time library, computes the same.
  --host   clang++ builds Strata. In it run the plugins that g++ built for g++'s Strata, those that clang++ built for it, those that g++
           builds against clang++'s SDK, and all of g++'s own.
Exit status 77 where there is no clang++: nothing was tested.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine import write_tokens  # noqa: E402

SKIPPED = 77
# Plugin, and settings under which a run uses it.
EXAMPLES = {"round_robin": ["partitioner.plugin=round_robin"],
            "mantissa10": ["precision.plugin=mantissa10"],
            "breadth_first": ["scheduler.plugin=breadth_first", "parallel.pipeline=2"],
            "inverse_root": ["learning_rate.plugin=inverse_root", "learning_rate.cooldown=2"],
            "npy": ["data.plugin=npy", "data.path={work}/train.npy"]}


def call(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"FAILED: exit status {done.returncode} of {shlex.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Bench:
    def __init__(self, work):
        self.work = work
        write_tokens(work / "train.bin")
        tokens = (work / "train.bin").read_bytes()
        header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(tokens) // 2},), }}"
        (work / "train.npy").write_bytes(b"\x93NUMPY\1\0\x76\0" + header.encode().ljust(117) + b"\n" + tokens)
        (work / "train.json").write_text(json.dumps({
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 32, "gpt_neox": {"hidden_size": 32, "layers": 3, "heads": 2, "vocabulary": 257}},
            "data": {"path": str(work / "train.bin")}, "train": {"steps": 5, "micro_batch": 2, "global_batch": 8, "seed": 3}, "learning_rate": {"base": 1e-2}}))

    def build(self, source, name, prefix, compiler, *settings):
        build = self.work / name
        call(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}",
              f"-DCMAKE_CXX_COMPILER={compiler}", *settings])
        call(["cmake", "--build", build, "--parallel", "1"])
        return build

    def train(self, strata, plugins, settings):
        """(exit status, losses, standard error) of a run on 2 ranks that finds `plugins`."""
        summary = self.work / "summary.json"
        summary.unlink(missing_ok=True)
        command = [strata, "train", self.work / "train.json", "--nproc", "2", "--quiet", "--summary", summary]
        for setting in settings:
            command += ["--set", setting.format(work=self.work)]
        environment = dict(os.environ, STRATA_PLUGIN_PATH=str(plugins), OMP_NUM_THREADS="2")
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment)
        return done.returncode, json.loads(summary.read_text())["losses"] if summary.exists() else [], done.stderr

    def losses(self, strata, plugins, settings, what):
        status, losses, errors = self.train(strata, plugins, settings)
        if status != 0 or not losses or not losses[-1] < losses[0]:
            sys.exit(f"FAILED: {what}: exit status {status}, losses {losses}\n{errors}")
        return losses

    def equal(self, runs):
        """Every (description, strata, plugins) of each example has the same losses."""
        for name, settings in EXAMPLES.items():
            found = {what: self.losses(strata, plugins(name), settings, f"{name}, {what}") for what, strata, plugins in runs}
            if len({tuple(losses) for losses in found.values()}) != 1:
                sys.exit(f"FAILED: the losses of {name} differ: {json.dumps(found, indent=1)}")
            print(f"{name}: losses {losses_text(next(iter(found.values())))} with {', '.join(found)}")


def refused(command, expected_status, words, what):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != expected_status or not all(word in done.stderr for word in words):
        sys.exit(f"FAILED: {what}: exit status {done.returncode} and not {expected_status}, or one of {words} is not in:\n{done.stderr}")
    print(f"{what}: refused: {done.stderr.strip().splitlines()[0]}")


def losses_text(losses):
    return f"{losses[0]:.6f} to {losses[-1]:.6f}"


def library_in(build):
    return next(build.glob("libstrata_*.so"))


def test_plugins(bench, arguments, prefix, clang):
    strata = prefix / "bin/strata"
    for name in EXAMPLES:
        bench.build(arguments.source / "examples/plugins" / name, f"clang-{name}", prefix, clang)
    for plugins, compiler in ((bench.work / "clang-round_robin", "clang"), (arguments.installed / "round_robin-build", "gcc")):
        found = json.loads(call([strata, "plugins", "show", library_in(plugins), "--format", "json"]))["compiler"]
        if not found.startswith(compiler):
            sys.exit(f"FAILED: the plugin in {plugins} is of {found}; {compiler} is expected")
    bench.equal([("g++'s plugin", strata, lambda name: arguments.installed / f"{name}-build"),
                 ("clang++'s plugin", strata, lambda name: bench.work / f"clang-{name}")])
    # UserError is 2; an exception that is not recognized would be an internal error, 70.
    schedule = library_in(bench.work / "clang-breadth_first")
    refused([strata, "schedule", "show", schedule, "--stages", "2", "--chunks", "2", "--micro-batches", "4"], 2, ["one chunk per stage"],
            "two chunks, by a UserError of clang++'s plugin")


def test_openmp(bench, arguments, prefix, clang):
    """at::parallel_for compiled into a plugin runs on clang's threads, beside those of the toolbox and of libtorch, which are GCC's."""
    source = bench.work / "openmp.cpp"
    source.write_text("#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
    if subprocess.run([clang, "-fopenmp", source, "-o", bench.work / "openmp"], capture_output=True).returncode != 0:
        print("clang++ has no OpenMP here (Debian: libomp-dev): a plugin with it is not tested")
        return
    project = bench.work / "sgd"
    shutil.copytree(arguments.source / "plugins/optimizer/sgd", project, dirs_exist_ok=True)
    text = (project / "CMakeLists.txt").read_text()
    (project / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.25)\nproject(sgd LANGUAGES CXX)\nfind_package(Strata REQUIRED)\n{text}")
    plugins = bench.build(project, "clang-sgd", prefix, clang, "-DCMAKE_CXX_FLAGS=-fopenmp")
    if "libomp" not in call(["readelf", "-d", library_in(plugins)]):
        sys.exit("FAILED: the plugin built with clang++ -fopenmp does not need libomp: nothing is tested")
    settings = ["optimizer.plugin=sgd", "optimizer.momentum=0.9"]
    found = {what: bench.losses(prefix / "bin/strata", folder, settings, f"sgd, {what}")
             for what, folder in (("g++'s", prefix / "lib/strata/plugins"), ("clang++'s with its OpenMP", plugins))}
    if len({tuple(losses) for losses in found.values()}) != 1:
        sys.exit(f"FAILED: the losses of sgd differ: {json.dumps(found, indent=1)}")
    print(f"sgd: losses {losses_text(next(iter(found.values())))} with {' and '.join(found)}")


def test_host(bench, arguments, prefix, clang):
    build, host = bench.work / "strata", bench.work / "host"
    call(["cmake", "-S", arguments.source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={clang}",
          "-DSTRATA_BUILD_TESTS=OFF", "-DSTRATA_CUDA=OFF", f"-DSTRATA_TORCH_DIR={arguments.torch}"])
    call(["cmake", "--build", build, "--parallel", "1"])
    call(["cmake", "--install", build, "--prefix", host])
    gcc = shutil.which("g++")
    for name in EXAMPLES:
        bench.build(arguments.source / "examples/plugins" / name, f"clang-{name}", host, clang)
        bench.build(arguments.source / "examples/plugins" / name, f"gcc-{name}", host, gcc)
    bench.equal([("g++'s Strata and g++'s plugin", prefix / "bin/strata", lambda name: arguments.installed / f"{name}-build"),
                 ("clang++'s Strata and the same file", host / "bin/strata", lambda name: arguments.installed / f"{name}-build"),
                 ("clang++'s Strata and clang++'s plugin", host / "bin/strata", lambda name: bench.work / f"clang-{name}"),
                 ("clang++'s Strata and g++'s plugin of its SDK", host / "bin/strata", lambda name: bench.work / f"gcc-{name}")])
    settings = ["partitioner.plugin=zero3", "precision.plugin=bf16"]
    own = bench.losses(host / "bin/strata", host / "lib/strata/plugins", settings, "clang++'s Strata and its own plugins")
    others = bench.losses(host / "bin/strata", prefix / "lib/strata/plugins", settings, "clang++'s Strata and all of g++'s plugins")
    # Two compilers may contract or reorder what a loop adds up; the rest is libtorch's.
    if any(abs(a - b) > 1e-5 * abs(b) for a, b in zip(own, others, strict=True)):
        sys.exit(f"FAILED: clang++'s own plugins and g++'s give {own} and {others}")
    print(f"clang++'s Strata: losses {losses_text(own)} with its own plugins, {losses_text(others)} with g++'s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("installed", "source", "torch", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--host", action="store_true", help="build Strata with clang++ too")
    arguments = parser.parse_args()
    clang = next(filter(None, map(shutil.which, ("clang++", "clang++-14"))), None)
    if clang is None:
        print("no clang++ here (Debian: clang): nothing is tested")
        sys.exit(SKIPPED)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for build in arguments.work.glob("*-*"):   # plugins; Strata's own build folder is kept, it takes a quarter of an hour
        shutil.rmtree(build)
    bench, prefix = Bench(arguments.work.resolve()), (arguments.installed / "moved here").resolve()
    if arguments.host:
        test_host(bench, arguments, prefix, clang)
    else:
        test_plugins(bench, arguments, prefix, clang)
        test_openmp(bench, arguments, prefix, clang)


if __name__ == "__main__":
    main()
