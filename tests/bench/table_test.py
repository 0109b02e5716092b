#!/usr/bin/env python3
"""What the benches print: the processor's name, columns as they stand in BENCHMARKS.md, and no "95 %" over fewer than six rounds."""
import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "peers")]
from table import interval_name, processor  # noqa: E402

BENCHMARKS = (FOLDER.parents[1] / "BENCHMARKS.md").read_text(encoding="utf-8")


def module_of(path):
    specification = importlib.util.spec_from_file_location(path.parent.name + "_run", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def check(holds, text):
    if not holds:
        sys.exit(f"FAILED: {text}")


def check_table(text, rounds):
    lines = text.splitlines()
    check(lines[0] == f"Processor: {processor()}.", f"the first line is {lines[0]}")
    label = interval_name(rounds)
    check((label == "95 %") == (rounds >= 6), f"{rounds} rounds are called {label}")
    check(("95 %" in text) == (rounds >= 6) and ("least .. most" in text) == (rounds < 6), f"{rounds} rounds:\n{text}")
    header = next(line for line in lines if line.startswith("|")).replace(label, "95 %")
    stands = [line.replace("spread", "95 %") for line in BENCHMARKS.splitlines()]
    check(header in stands, f"BENCHMARKS.md has no table of {header}")


def main():
    loop, peers = module_of(FOLDER / "run.py"), module_of(FOLDER / "peers" / "run.py")
    for rounds in (1, 2, 5, 6, 8):
        ratios = [1.0 + 0.1 * number for number in range(rounds)]
        low, high = loop.interval(ratios)
        check(rounds >= 6 or (low, high) == (min(ratios), max(ratios)), f"of {rounds} pairs: {low} .. {high}")
        check_table(loop.show([{"model": "m", "batch": 4, "seq_len": 128, "threads": 1, "memory": "returned", "partitioner": "ddp", "ratio": 1.0,
                                "low": low, "high": high, "pairs": rounds, "engine_s": 0.1, "loop_s": 0.1, "loss_difference": 0.0}], "markdown"), rounds)
        over = peers.ratio([[ratio, ratio + 0.01] for ratio in ratios])
        check(over[1] <= over[0] <= over[2], f"of {rounds} rounds: {over}")
        check_table(peers.show([{"model": "m", "variant": "strata ddp", "step_s": 0.1, "over_floor": over, "over_fastest_peer": over,
                                 "interval": interval_name(rounds), "loss_difference": 0.0}], "markdown"), rounds)
    print("passed")


if __name__ == "__main__":
    main()
