#!/usr/bin/env python3
"""Updates on the host. Strata's (`strata bench optimizer/NAME`, whose floor is one pass over the same memory) compared with torch's and
DeepSpeed's, one after the other in every round. Two cases: all in fp32, and that of offloaded state, with bf16 gradients in, bf16 weights out, fp32 master
weights and state; there the peers make the conversions that they need. Of Lion torch has none: its line is the formula in torch's
foreach operators. Goals: never slower than any of them, and AdamW at most 1.03 of the floor.

  python3 tests/benchmarks/peers/optimizer.py --python FOLDER/bin/python3 --build build/release
"""
import argparse, json, pathlib, statistics, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from command import call
from table import interval, interval_name, markdown

CASES = {"fp32": "step, fp32", "bf16": "step, bf16 gradient, fp32 master and bf16 copy"}
GOALS = {"adamw": 1.03}  # times the floor
PEERS = """
import json, sys, time, torch
name, case, elements, threads, passes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.set_num_threads(threads)
master = torch.full((elements,), 0.5)
wide = torch.full((elements,), 1e-3)
gradient, weight = wide.bfloat16(), torch.zeros(elements, dtype=torch.bfloat16)
master.grad = wide
class Lion:
    def __init__(self, parameters):
        self.parameters, self.moments = parameters, [torch.zeros_like(one) for one in parameters]
    @torch.no_grad()
    def step(self):
        gradients = [one.grad for one in self.parameters]
        steps = torch._foreach_lerp(self.moments, gradients, 0.1)
        torch._foreach_sign_(steps)
        torch._foreach_add_(self.parameters, steps, alpha=-1e-4)
        torch._foreach_lerp_(self.moments, gradients, 0.01)
def timed(optimizer):
    times = []
    for _ in range(passes + 1):
        begin = time.monotonic()
        if case == "bf16":
            wide.copy_(gradient)
        optimizer.step()
        if case == "bf16":
            weight.copy_(master)
        times.append(time.monotonic() - begin)
    return times[1:]
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.lion import DeepSpeedCPULion
make = {
    "adamw": {"torch foreach": lambda p: torch.optim.AdamW(p, foreach=True), "torch fused": lambda p: torch.optim.AdamW(p, fused=True),
              "DeepSpeed": DeepSpeedCPUAdam},
    "adagrad": {"torch foreach": lambda p: torch.optim.Adagrad(p, foreach=True), "torch fused": lambda p: torch.optim.Adagrad(p, fused=True),
                "DeepSpeed": DeepSpeedCPUAdagrad},
    "lion": {"torch foreach": Lion, "DeepSpeed": DeepSpeedCPULion},
}[name]
print(json.dumps({peer: timed(one([master])) for peer, one in make.items()}))
"""


def strata(arguments, name, elements, threads):
    plugins = {"STRATA_PLUGIN_PATH": str(arguments.build / "lib/strata/plugins")}
    out = call([arguments.build / "bin/strata", "bench", f"optimizer/{name}", "--size", str(4 * elements), "--threads", str(threads), "--rounds",
                str(arguments.passes), "--format", "json"], **plugins)
    return {row["case"]: row for row in json.loads(out)["rows"]}


class Line:
    """What was measured of one optimizer, case, size and number of threads."""

    def __init__(self):
        self.own, self.over_floor, self.over_own = [], [], {}

    def add(self, row, peers):
        mine = statistics.median(row["values"])
        self.own += row["values"]
        self.over_floor += [one / floor for one, floor in zip(row["values"], row["floor_values"], strict=True)]
        for peer, times in peers.items():
            self.over_own.setdefault(peer, []).extend(one / mine for one in times)

    def row(self, name, case, elements, threads):
        low, high = interval(self.over_floor)
        peers = (f"{peer} {statistics.median(times):.2f} ({min(times):.2f} .. {max(times):.2f})" for peer, times in self.over_own.items())
        return [name, case, f"{elements / 1e6:g}M", str(threads), f"{1e3 * statistics.median(self.own):.1f} ms", f"**{statistics.median(self.over_floor):.3f}**",
                f"{low:.3f} .. {high:.3f}", ", ".join(peers)]

    def wrong(self, name):
        found = statistics.median(self.over_floor)
        said = [f"{found:.3f} of the floor, above {GOALS[name]}"] if found > GOALS.get(name, found) else []
        return said + [f"slower than {peer}" for peer, times in self.over_own.items() if statistics.median(times) < 1.0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, required=True, help="the interpreter of peers/setup.sh")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--optimizers", nargs="+", choices=["adamw", "adagrad", "lion"], default=["adamw", "adagrad", "lion"])
    parser.add_argument("--elements", type=int, nargs="+", default=[16 * 2**20, 200_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=8, help="of each in a round, at least 8")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    rows, wrong = [], []
    for name in arguments.optimizers:
        for elements in arguments.elements:
            for threads in arguments.threads:
                lines = {case: Line() for case in CASES}
                for _ in range(arguments.rounds):
                    own = strata(arguments, name, elements, threads)
                    for case, line in lines.items():
                        words = [arguments.python, "-c", PEERS, name, case, str(elements), str(threads), str(arguments.passes)]
                        line.add(own[CASES[case]], json.loads(call(words, OMP_NUM_THREADS=str(threads)).splitlines()[-1]))
                for case, line in lines.items():
                    rows.append(line.row(name, case, elements, threads))
                    wrong += [f"{name}, {case}, {elements} elements, {threads} threads: {what}" for what in line.wrong(name)]
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    pairs = arguments.rounds * arguments.passes
    print(markdown(["optimizer", "formats", "elements", "threads", "strata", "over the floor", interval_name(pairs),
                    "time of peers over it, median (least .. most)"], rows))
    if wrong:
        sys.exit("optimizer.py: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
