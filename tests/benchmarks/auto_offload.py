#!/usr/bin/env python3
"""The step time that `offload: auto` predicts, compared with the measured one; and its choice compared with all others.

A setting is a model, ranks, what a step is like, and a device budget between what the run takes with everything on the disk (0) and with nothing
there (1). With --exhaustive every combination of homes with halves of each class that fits the budget is trained too, some steps each, and
the fastest ones once more in turns with the chosen one.

  python3 tests/benchmarks/auto_offload.py --build build/release --disk FOLDER
  python3 tests/benchmarks/auto_offload.py --build build/release --disk FOLDER --only 2,4,6 --exhaustive
"""
import argparse, itertools, json, os, pathlib, statistics, sys, tempfile

from command import call, carried_out, failed
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["core", "sdk", "plugins", "README.md"]
LITTLE = ["offload.read_ahead=64MiB", "offload.update_elements=2097152"]
# model, ranks, share of the memory that may leave, more
SETTINGS = [
    ("pythia-160m", 1, 0.1, ["precision.plugin=bf16"]),
    ("pythia-160m", 1, 0.5, ["precision.plugin=bf16", "train.micro_batch=2"]),
    ("pythia-160m", 2, 0.1, ["precision.plugin=bf16"]),
    ("pythia-160m", 2, 0.5, ["precision.plugin=bf16", "step_policy=delayed"]),
    ("pythia-70m", 1, 0.3, ["precision.plugin=fp32", "train.accumulation=4"]),
    ("pythia-70m", 2, 0.3, ["precision.plugin=fp32", "train.micro_batch=4"]),
]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin/strata"
        self.plugins = {"STRATA_PLUGIN_PATH": str(arguments.build / "lib/strata/plugins")}
        self.tokens = folder / "tokens.bin"
        call([self.strata, "data", "pack", *(REPOSITORY / text for text in TEXTS), "-o", self.tokens], **self.plugins)

    def words(self, setting, more):
        model, ranks, _, own = setting
        settings = [f"data.path={self.tokens}", f"model.preset={model}", "model.seq_len=256", "train.micro_batch=1", "train.accumulation=1",
                    "train.global_batch=auto", f"train.steps={self.arguments.steps}", "learning_rate.base=1e-4", "learning_rate.plugin=constant",
                    "learning_rate.warmup=0", "partitioner.plugin=zero3", *own, *more]
        if any(key.startswith("offload") for key in more):
            settings += LITTLE  # refused where nothing leaves
        return [REPOSITORY / "configs/quickstart.yaml", "--nproc", str(ranks), *(word for one in settings for word in ("--set", one))]

    def planned(self, setting, more=()):
        ranks = json.loads(call([self.strata, "plan", *self.words(setting, more), "--format", "json"], **self.plugins))["ranks"]
        return max(rank["total"] for rank in ranks)

    def train(self, setting, more):
        """The summary, and the keys that it chose where it did."""
        summary = self.folder / "summary.json"
        command = [self.strata, "train", *self.words(setting, more), "--summary", summary]
        done = carried_out(command, OMP_NUM_THREADS=str(max(1, os.cpu_count() // setting[1])), **self.plugins)
        if done.returncode != 0:
            failed(command, done)
        lines = done.stderr.splitlines()
        return json.loads(summary.read_text()), [line.split("offload: auto:   ")[1] for line in lines if "offload: auto:   " in line]

    def away(self, what, ratio=1.0):
        return [f"offload.{what}={{plugin: nvme, path: \"{self.arguments.disk}\"}}", f"offload.{what}_ratio={ratio}"]

    def budget(self, setting):
        everything = [*self.away("parameters"), *self.away("optimizer"), *self.away("activations"), "activations.checkpoint=all"]
        least, most = self.planned(setting, everything), self.planned(setting)
        return int(least + setting[2] * (most - least))

    def choice(self, setting, budget):
        return self.train(setting, ["offload=auto", "offload.host=none", f"offload.disk={{plugin: nvme, path: \"{self.arguments.disk}\"}}",
                                    f"device_budget={budget}"])

    def others(self, setting, budget):
        """The settings of every combination that fits."""
        shares = [(), *((ratio,) for ratio in (0.5, 1.0))]
        orders = [[]] if "train.accumulation=4" not in setting[3] else [[], ["scheduler.plugin=l2l"], ["scheduler.plugin=gpipe"]]
        for order, recompute, parameters, optimizer, activations in itertools.product(orders, ("none", "all"), shares, shares, shares):
            if activations and recompute == "none":
                continue
            more = [*order, f"activations.checkpoint={recompute}"]
            for what, share in (("parameters", parameters), ("optimizer", optimizer), ("activations", activations)):
                more += self.away(what, *share) if share else []
            if self.planned(setting, more) <= budget:
                yield more


def median_step(summary):
    return statistics.median(summary["step_seconds"][2:])


def exhaustive(bench, setting, budget, chosen):
    """The times of the fastest of all combinations, and of the chosen keys, in turns."""
    timed = []
    for more in bench.others(setting, budget):
        timed.append((median_step(bench.train(setting, more)[0]), more))
        print(f"  {timed[-1][0]:.3f} s  {' '.join(more)}", file=sys.stderr, flush=True)
    timed.sort(key=lambda one: one[0])
    candidates = [more for _, more in timed[:3]]
    own = [f"{key}={value}" for key, value in (line.split(": ", 1) for line in chosen)]
    seconds = [[median_step(bench.train(setting, more)[0]) for more in (own, *candidates)] for _ in range(bench.arguments.rounds)]
    columns = [statistics.median(column) for column in zip(*seconds)]
    return len(timed), columns[0], min(columns[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--disk", type=pathlib.Path, required=True, help="a folder on the disk that may be chosen")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="of the fastest ones in turns")
    parser.add_argument("--only", help="numbers of settings, from 1, separated by commas")
    parser.add_argument("--exhaustive", action="store_true", help="also train every other placement")
    arguments = parser.parse_args()
    arguments.build, arguments.disk = arguments.build.resolve(), arguments.disk.resolve()
    wanted = [int(number) for number in arguments.only.split(",")] if arguments.only else range(1, len(SETTINGS) + 1)
    rows, all_rows = [], []
    with tempfile.TemporaryDirectory(prefix="strata-auto-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        for number in wanted:
            setting = SETTINGS[number - 1]
            budget = bench.budget(setting)
            summary, chosen = bench.choice(setting, budget)
            predicted, measured = summary["predicted_step_s"], median_step(summary)
            name = f"{setting[0]}, {setting[1]} ranks, {', '.join(one.split('=')[1] for one in setting[3])}"
            rows.append([str(number), name, f"{budget / 1e6:.0f} MB", f"{predicted:.3f}", f"{measured:.3f}", f"{predicted / measured - 1:+.1%}"])
            print(" | ".join(rows[-1]), *chosen, sep="\n  ", file=sys.stderr, flush=True)
            if arguments.exhaustive:
                count, own, best = exhaustive(bench, setting, budget, chosen)
                all_rows.append([str(number), str(count), f"{own:.3f}", f"{best:.3f}", f"{own / best:.3f}"])
                print(" | ".join(all_rows[-1]), file=sys.stderr, flush=True)
    print(markdown(["", "setting", "device budget", "expected s", "step s", "error"], rows))
    if all_rows:
        print(markdown(["", "others that fit", "chosen, step s", "best of all, step s", "ratio"], all_rows))


if __name__ == "__main__":
    main()
