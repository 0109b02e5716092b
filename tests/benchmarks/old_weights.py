#!/usr/bin/env python3
"""The cost in loss of pipeline stages that update within the step, with older weights.

Every run trains the same model from the same weights on the same micro-batches in the same order, 4 stages, and is measured on other
text in the end. 1f1b makes one update a step, of as many micro-batches as are given; pipedream makes several updates of so many within
its step. Rows with as many micro-batches an update make as many updates of as many tokens and differ only in the weights that
gradients are taken at. Rates are constant. Python's standard library only.

  python3 tests/benchmarks/old_weights.py --build build/release
  python3 tests/benchmarks/old_weights.py --build build/release --micro-batches 4 --seed 2
"""
import argparse, json, pathlib, sys, tempfile

from command import call, carried_out, failed
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
STAGES, MICRO_BATCHES = 4, 16
TRAINED, HELD_OUT = ("core", "sdk", "plugins", "examples", "cmake"), ("tests",)
# The schedule, its version, and the micro-batches of an update.
RUNS = [("1f1b", "", 4), ("pipedream", "stash", 4), ("pipedream", "2bw", 4), ("1f1b", "", 1), ("pipedream", "stash", 1), ("pipedream", "vertical", 1)]


def call_that_may_diverge(command):
    """What it prints; nothing where it ends because the training has diverged."""
    done = carried_out(command)
    if done.returncode == 3 and "not finite" in done.stderr:
        return None
    if done.returncode != 0:
        failed(command, done)
    return done.stdout


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        for name, folders in (("train.bin", TRAINED), ("held_out.bin", HELD_OUT)):
            call([self.strata, "data", "pack", *(REPOSITORY / one for one in folders), "-o", folder / name])

    def loss(self, scheduler, version, per_update, optimizer, rate):
        """Of the held-out text after all updates, in words."""
        accumulation = MICRO_BATCHES if version else per_update
        settings = [
            f"data.path={self.folder / 'train.bin'}", "data.order=shuffled", f"validation.path={self.folder / 'held_out.bin'}", "validation.samples=256",
            "model.vocabulary=512", "model.seq_len=64", "train.micro_batch=2", f"train.accumulation={accumulation}",
            f"train.steps={self.arguments.steps * MICRO_BATCHES // accumulation}", "train.clip=0", f"train.seed={self.arguments.seed}",
            "learning_rate.plugin=constant", f"learning_rate.base={rate}", "learning_rate.warmup=0", f"parallel.pipeline={STAGES}", f"scheduler.plugin={scheduler}", "partitioner.plugin=ddp",
            f"optimizer.plugin={optimizer}", "optimizer.sgd.momentum=0.9", "optimizer.adamw.betas=[0.9, 0.95]"]
        if version:
            settings += [f"scheduler.pipedream.version={version}", f"scheduler.pipedream.micro_batches_per_update={per_update}"]
        summary = self.folder / "summary.json"
        told = call_that_may_diverge([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", STAGES, "--oversubscribe", "--summary", summary,
                     *(word for setting in settings for word in ("--set", setting))])
        return "diverges" if told is None else f"{json.loads(summary.read_text(encoding='utf-8'))['validation']['last']['loss']:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=300, help=f"of {MICRO_BATCHES} micro-batches")
    parser.add_argument("--micro-batches", type=int, choices=(4, 1), help="of an update: only these rows")
    parser.add_argument("--seed", type=int, default=1, help="of the weights that all begin with, and of the order of samples")
    parser.add_argument("--optimizers", nargs="+", choices=("sgd", "adamw"), default=["sgd", "adamw"])
    parser.add_argument("--rates", nargs="+", help="learning rates in place of the optimizers' own two")
    arguments = parser.parse_args()
    arguments.build = arguments.build.absolute()
    own = {"sgd": ["0.01", "0.03"], "adamw": ["3e-4", "1e-3"]}
    columns = [f"{optimizer} {rate}" for optimizer in arguments.optimizers for rate in arguments.rates or own[optimizer]]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        rows = []
        for scheduler, version, per_update in RUNS:
            if arguments.micro_batches not in (None, per_update):
                continue
            updates = arguments.steps * MICRO_BATCHES // per_update
            losses = [bench.loss(scheduler, version, per_update, *column.split()) for column in columns]
            rows.append([f"{scheduler} {version}".strip(), str(per_update), str(updates), *losses])
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
        print(markdown(["schedule", "micro-batches an update", "updates", *columns], rows))


if __name__ == "__main__":
    main()
