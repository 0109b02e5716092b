#!/usr/bin/env python3
"""The cost in loss of groups of ranks that train by themselves (step_policy: local), and the bytes it saves.

Every run trains the same model from the same weights on the same samples in the same order, as many steps of as many tokens, and is
measured on other text in the end. The first row sums gradients over all ranks in every step. With --bound the program fails where a
loss is further above the first row's, in percent. Python's standard library only.

  python3 tests/benchmarks/local_training.py --build build/release
  python3 tests/benchmarks/local_training.py --build build/release --every 50 --ranks 4
"""
import argparse, json, pathlib, sys, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TRAINED, HELD_OUT = ("core", "sdk", "plugins", "examples", "cmake"), ("tests",)


def rows(every):
    """By name: the settings in addition to those of all."""
    local = ["step_policy=local", f"local.steps={every}"]
    return {
        "summed in every step": [],
        f"every {every} steps": local,
        f"every {every} steps, 4 fragments": [*local, "local.fragments=4"],
        f"every {every} steps, plain average": [*local, "local.rate=1", "local.momentum=0"],
    }


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        for name, folders in (("train.bin", TRAINED), ("held_out.bin", HELD_OUT)):
            call([self.strata, "data", "pack", *(REPOSITORY / one for one in folders), "-o", folder / name])

    def run(self, more):
        """The loss of the held-out text, and the bytes that a rank sends to other groups in a step."""
        arguments = self.arguments
        settings = [
            f"data.path={self.folder / 'train.bin'}", "data.order=shuffled", f"validation.path={self.folder / 'held_out.bin'}", "validation.samples=128",
            "model.vocabulary=512", "model.seq_len=64", "train.micro_batch=4", "train.accumulation=1", f"train.steps={arguments.steps}", f"train.seed={arguments.seed}",
            "learning_rate.base=1e-3", "partitioner.plugin=hybrid", "partitioner.hybrid.shard_size=1", "partitioner.hybrid.stage=1", *more]
        summary = self.folder / "summary.json"
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", arguments.ranks, "--oversubscribe", "--summary", summary,
              *(word for setting in settings for word in ("--set", setting))])
        said = json.loads(summary.read_text(encoding="utf-8"))
        return said["validation"]["last"]["loss"], said["sent"][0]["total"] / arguments.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=20, help="steps from one average to the next")
    parser.add_argument("--ranks", type=int, default=2, help="groups, of one rank each")
    parser.add_argument("--seed", type=int, default=1, help="of the weights that all begin with, and of the order of samples")
    parser.add_argument("--bound", type=float, help="fail where a loss is above the first row's by more, in percent")
    arguments = parser.parse_args()
    arguments.build = arguments.build.absolute()
    with tempfile.TemporaryDirectory() as folder:
        bench, found, far = Bench(arguments, pathlib.Path(folder)), [], []
        for name, more in rows(arguments.every).items():
            loss, sent = bench.run(more)
            first_loss, first_sent = (first_loss, first_sent) if found else (loss, sent)
            percent = 100 * (loss / first_loss - 1)
            found.append([name, f"{loss:.4f}", f"{percent:+.2f} %", f"{sent / 1e6:.3f} MB", f"{first_sent / sent:.1f}"])
            print(" | ".join(found[-1]), file=sys.stderr, flush=True)
            if arguments.bound is not None and not percent <= arguments.bound:
                far.append(name)
        print(markdown(["between groups", "loss", "over the first", "sent a step and rank", "times less"], found))
    if far:
        sys.exit(f"further than {arguments.bound} % above the first row: {'; '.join(far)}")


if __name__ == "__main__":
    main()
