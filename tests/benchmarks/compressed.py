#!/usr/bin/env python3
"""What compressed communication costs in loss, and what it saves on the wire.

Every run trains the same model from the same weights on the same micro-batches in the same order and is measured on other text in
the end. The rows differ in what zero3 sends compressed. With --bound the program fails where a loss is further from the first row's, in
percent; not for 4 bits whose errors are lost, which are here to be seen. Python's standard library only.

  python3 tests/benchmarks/compressed.py --build build/release
  python3 tests/benchmarks/compressed.py --build build/release --seed 2 --bound 0.5
"""
import argparse, json, pathlib, sys, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TRAINED, HELD_OUT = ("core", "sdk", "plugins", "examples", "cmake"), ("tests",)
ROWS = {
    "exact": [],
    "weights int8": ["weights_on_wire=int8"],
    "gradients int8": ["gradients_on_wire=int8"],
    "gradients int4": ["gradients_on_wire=int4"],
    "gradients int4, error_feedback": ["gradients_on_wire=int4", "error_feedback=true"],
    "weights int8, gradients int4, error_feedback": ["weights_on_wire=int8", "gradients_on_wire=int4", "error_feedback=true"],
}

UNBOUNDED = "gradients int4"


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        for name, folders in (("train.bin", TRAINED), ("held_out.bin", HELD_OUT)):
            call([self.strata, "data", "pack", *(REPOSITORY / one for one in folders), "-o", folder / name])

    def run(self, options):
        """The loss of the held-out text, and the bytes that a rank sends in a step."""
        settings = [
            f"data.path={self.folder / 'train.bin'}", "data.order=shuffled", f"validation.path={self.folder / 'held_out.bin'}", "validation.samples=256",
            "model.vocabulary=512", "model.seq_len=64", "train.micro_batch=4", f"train.steps={self.arguments.steps}", f"train.seed={self.arguments.seed}",
            "learning_rate.base=1e-3", "partitioner.plugin=zero3", *(f"partitioner.zero3.{option}" for option in options)]
        summary = self.folder / "summary.json"
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", self.arguments.ranks, "--oversubscribe", "--summary", summary,
              *(word for setting in settings for word in ("--set", setting))])
        said = json.loads(summary.read_text(encoding="utf-8"))
        return said["validation"]["last"]["loss"], said["sent"][0]["total"] / self.arguments.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the weights that all begin with, and of the order of samples")
    parser.add_argument("--bound", type=float, help="fail where a loss differs from the first row's by more, in percent")
    arguments = parser.parse_args()
    arguments.build = arguments.build.absolute()
    with tempfile.TemporaryDirectory() as folder:
        bench, rows, far = Bench(arguments, pathlib.Path(folder)), [], []
        for name, options in ROWS.items():
            loss, sent = bench.run(options)
            first_loss, first_sent = (first_loss, first_sent) if rows else (loss, sent)
            percent = 100 * (loss / first_loss - 1)
            rows.append([name, f"{loss:.4f}", f"{percent:+.2f} %", f"{sent / 1e6:.2f} MB", f"{first_sent / sent:.2f}"])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
            if arguments.bound is not None and name != UNBOUNDED and not abs(percent) <= arguments.bound:
                far.append(name)
        print(markdown(["on the wire", "loss", "over exact", "sent a step and rank", "times less"], rows))
    if far:
        sys.exit(f"further than {arguments.bound} % from exact: {'; '.join(far)}")


if __name__ == "__main__":
    main()
