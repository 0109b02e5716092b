#!/usr/bin/env python3
"""The cost of `strata train --trace`: in every run half of the steps are traced, from a quarter of them on.

Prints the median of these steps, of the others, and their ratio, and the same of runs that trace nothing, in turns: how much the
machine's own unrest makes of it. Python's standard library only.

  python3 tests/benchmarks/trace_cost.py --build build/release
"""
import argparse, json, pathlib, statistics, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RUNS = {"2 stages, 1f1b": ["parallel.pipeline=2", "scheduler.plugin=1f1b"], "2 ranks, zero3": ["partitioner.plugin=zero3"]}


def steps_of(strata, folder, settings, steps, traced):
    """Seconds of the steps that are traced, or would be, and of the others."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    settings = settings + [f"data.path={folder / 'tokens.bin'}", f"train.steps={steps}", "train.micro_batch=1", "train.accumulation=4",
                           "model.seq_len=64", "model.vocabulary=512"]
    trace = ["--trace", folder / "trace.json", "--trace-steps", steps // 2] if traced else []
    call([strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", 2, "--oversubscribe", "--warmup-steps", steps // 4, "--metrics", metrics, *trace,
          *(word for setting in settings for word in ("--set", setting))])
    seconds = [json.loads(line)["step_s"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    begin, end = steps // 4, steps // 4 + steps // 2
    return seconds[begin:end - 1], seconds[5:begin] + seconds[end + 1:]  # the file is written after the last traced step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    strata = arguments.build.absolute() / "bin" / "strata"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        call([strata, "data", "pack", REPOSITORY / "README.md", REPOSITORY / "tests/benchmarks/log", "-o", folder / "tokens.bin"])
        rows = []
        for text, settings in RUNS.items():
            found = {True: [], False: []}
            for _ in range(arguments.rounds):
                for traced, medians in found.items():
                    medians.append([statistics.median(part) for part in steps_of(strata, folder, settings, arguments.steps, traced)])
            for traced, medians in found.items():
                ratios = [inner / outer for inner, outer in medians]
                rows.append([text, "traced" if traced else "not traced", *(f"{1000 * statistics.median(part):.2f} ms" for part in zip(*medians)),
                             f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} .. {max(ratios):.3f}"])
        print(markdown(["run", "inner half", "its step", "step of the rest", "ratio", "least .. most"], rows))


if __name__ == "__main__":
    main()
