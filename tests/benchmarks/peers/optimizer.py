#!/usr/bin/env python3
"""The update of offloaded state on the host: AdamW with bf16 gradients in and bf16 weights out, fp32 master weights and moments. Strata's pass
(`strata bench optimizer/adamw`, whose floor is one pass over the same memory) beside DeepSpeed's CPUAdam and torch's fused AdamW, each with the
conversions that it needs, one after the other in every round. Goal: Strata takes at most 1.05 of the floor.

  python3 tests/benchmarks/peers/optimizer.py --python FOLDER/bin/python3 --build build/release
"""
import argparse, json, pathlib, statistics, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from command import call
from table import markdown

CASE = "step, bf16 gradient, fp32 master and bf16 copy"
PEERS = """
import json, sys, time, torch
elements, threads, rounds = map(int, sys.argv[1:])
torch.set_num_threads(threads)
master = torch.full((elements,), 0.5)
gradient = torch.full((elements,), 1e-3, dtype=torch.bfloat16)
weight = torch.zeros(elements, dtype=torch.bfloat16)
wide = torch.empty(elements)
master.grad = wide
def timed(optimizer):
    times = []
    for _ in range(rounds + 1):
        begin = time.monotonic()
        wide.copy_(gradient)
        optimizer.step()
        weight.copy_(master)
        times.append(time.monotonic() - begin)
    return times[1:]
from deepspeed.ops.adam import DeepSpeedCPUAdam
found = {"torch fused": timed(torch.optim.AdamW([master], fused=True)), "DeepSpeed CPUAdam": timed(DeepSpeedCPUAdam([master]))}
print(json.dumps(found))
"""


def strata(arguments, elements, threads):
    plugins = {"STRATA_PLUGIN_PATH": str(arguments.build / "lib/strata/plugins")}
    out = call([arguments.build / "bin/strata", "bench", "optimizer/adamw", "--size", str(4 * elements), "--threads", str(threads), "--rounds", "8", "--format",
                "json"], **plugins)
    return next(row for row in json.loads(out)["rows"] if row["case"] == CASE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, required=True, help="the interpreter of peers/setup.sh")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--elements", type=int, nargs="+", default=[50_000_000, 200_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    rows, wrong = [], []
    for elements in arguments.elements:
        for threads in arguments.threads:
            own, floors, peers = [], [], {}
            for _ in range(arguments.rounds):
                row = strata(arguments, elements, threads)
                own += row["values"]
                floors += row["floor_values"]
                words = [arguments.python, "-c", PEERS, str(elements), str(threads), "5"]
                for name, times in json.loads(call(words, OMP_NUM_THREADS=str(threads)).splitlines()[-1]).items():
                    peers.setdefault(name, []).extend(times)
            ratios = sorted(mine / floor for mine, floor in zip(own, floors))
            step = statistics.median(own)
            rows.append([f"{elements // 10**6}M", str(threads), f"{1e3 * step:.1f} ms", f"**{statistics.median(ratios):.3f}**", f"{ratios[0]:.3f} .. {ratios[-1]:.3f}",
                         *(f"{statistics.median(peers[name]) / step:.2f}" for name in peers)])
            if statistics.median(ratios) > 1.05:
                wrong.append(f"{elements} elements, {threads} threads: above 1.05 of the floor")
            print(f"{elements} elements, {threads} threads", file=sys.stderr)
    print(markdown(["elements", "threads", "strata", "over the floor", "least .. most", *(f"time of {name} over it" for name in peers)], rows))
    if wrong:
        sys.exit("optimizer.py: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
