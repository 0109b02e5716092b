#!/usr/bin/env python3
"""The communicators for tensors in host memory compared on this machine, also with MPI where mpicc and mpirun are: runs
interleaved. Each figure is the median over rounds of a run's median repetition, on rank 0; all ranks begin a repetition together.

  python3 tests/benchmarks/collectives.py --build build/release      # with Debian's openmpi-bin and libopenmpi-dev also Open MPI
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile

from table import markdown

SOURCES = pathlib.Path(__file__).resolve().parent
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather"]


def call(command, environment=None):
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tests/benchmarks/collectives.py: exit status {done.returncode} of {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder configured with STRATA_BUILD_TESTS=ON")
    parser.add_argument("--communicators", nargs="+", default=["shm", "gloo"], help="the others' times are divided by the first's")
    parser.add_argument("--bytes", nargs="+", type=int, default=[1 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--format", choices=["markdown", "json"], default="markdown")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    call(["cmake", "--build", build, "--target", "collectives_bench"])
    numbers = [arguments.repetitions, *arguments.bytes]
    plugins = dict(os.environ, STRATA_PLUGIN_PATH=str(build / "lib/strata/plugins"), OMP_NUM_THREADS="1")
    runs = {name: lambda name=name: call([build / "bin/strata", "launch", "--nproc", arguments.ranks, build / "bin/collectives_bench", name, *numbers],
                                         plugins) for name in arguments.communicators}
    with tempfile.TemporaryDirectory(prefix="strata-collectives-") as folder:
        if shutil.which("mpicc") and shutil.which("mpirun"):
            program = pathlib.Path(folder) / "collectives_mpi"
            call(["mpicc", "-O3", SOURCES / "collectives_mpi.c", "-o", program])
            runs["MPI"] = lambda: call(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", arguments.ranks, program, *numbers])
        else:
            print("without MPI: there is no mpicc or no mpirun", file=sys.stderr)
        medians = {}  # by (run, collective, bytes): one a round
        for number in range(arguments.rounds):
            names = list(runs)
            for name in names[number % len(names):] + names[:number % len(names)]:
                for line in map(json.loads, filter(None, runs[name]().splitlines())):
                    for collective in COLLECTIVES:
                        medians.setdefault((name, collective, line["bytes"]), []).append(statistics.median(line[collective]))
    first = arguments.communicators[0]
    if arguments.format == "json":
        print(json.dumps([{"communicator": name, "collective": collective, "bytes": size, "seconds": seconds}
                          for (name, collective, size), seconds in medians.items()], indent=1))
        return
    columns = [f"{arguments.ranks} ranks", "KiB", *(f"{name} µs" for name in runs), *(f"{name} / {first}" for name in runs if name != first)]
    rows = []
    for collective in COLLECTIVES:
        for size in sorted({size for _, one, size in medians if one == collective}):
            of = {name: medians[name, collective, size] for name in runs}
            ratios = [f"**{statistics.median(a / b for a, b in zip(of[name], of[first])):.2f}**" for name in runs if name != first]
            rows.append([collective, f"{size / 1024:g}", *(f"{1e6 * statistics.median(of[name]):.0f}" for name in runs), *ratios])
    print(markdown(columns, rows))


if __name__ == "__main__":
    main()
