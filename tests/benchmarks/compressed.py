#!/usr/bin/env python3
"""The cost of compressed communication in loss, and the bytes it saves.

Every run trains the same model from the same weights on the same micro-batches in the same order and is measured on other text in
the end. The rows of `wire` differ in what zero3 sends compressed, those of `optimizers` in the optimizer, with ddp: those that send signs
sum gradients for the first third of the steps, as adamw does always, or seldomer. With --bound the program fails where a loss is worse than
the first row's by more, in percent, and for `wire` also where it is better; not for 4 bits whose errors are lost, which are here to be seen.
Python's standard library only.

  python3 tests/benchmarks/compressed.py --build build/release
  python3 tests/benchmarks/compressed.py --build build/release --seed 2 --bound 0.5
  python3 tests/benchmarks/compressed.py --build build/release --rows optimizers --bound 1
"""
import argparse, json, pathlib, sys, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
UNBOUNDED = "gradients int4"
TRAINED, HELD_OUT = ("core", "sdk", "plugins", "examples", "cmake"), ("tests",)


def zero3(*options):
    return ["partitioner.plugin=zero3", *(f"partitioner.zero3.{option}" for option in options)]


def ddp(optimizer):
    return ["partitioner.plugin=ddp", "train.clip=0", f"optimizer={{{optimizer}}}"]


def wire(_):
    return {
        "exact": zero3(),
        "weights int8": zero3("weights_on_wire=int8"),
        "gradients int8": zero3("gradients_on_wire=int8"),
        UNBOUNDED: zero3("gradients_on_wire=int4"),
        "gradients int4, error_feedback": zero3("gradients_on_wire=int4", "error_feedback=true"),
        "weights int8, gradients int4, error_feedback": zero3("weights_on_wire=int8", "gradients_on_wire=int4", "error_feedback=true"),
    }


def optimizers(steps):
    """A third of the steps is the warm-up, in half of which zero_one_adam sums all gradients; then its ranks exchange after every step, and in
    the last third after every other. The second moment is a mean over so few updates that it has settled by then: nothing corrects its start."""
    third = steps // 3
    settings = {
        "adamw": "weight_decay: 0",
        "onebit_adam": f"freeze_step: {third}",
        "zero_one_adam": f"var_freeze_step: {third}, var_update_scaler: {third // 2}, local_step_scaler: {third}, local_step_clipper: 2",
    }
    return {name: ddp(f"plugin: {name}, betas: [0.9, 0.95], {own}") for name, own in settings.items()}


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        for name, folders in (("train.bin", TRAINED), ("held_out.bin", HELD_OUT)):
            call([self.strata, "data", "pack", *(REPOSITORY / one for one in folders), "-o", folder / name])

    def run(self, own):
        """The loss of the held-out text, and the bytes that a rank sends in a step."""
        settings = [
            f"data.path={self.folder / 'train.bin'}", "data.order=shuffled", f"validation.path={self.folder / 'held_out.bin'}", "validation.samples=256",
            "model.vocabulary=512", "model.seq_len=64", "train.micro_batch=4", f"train.steps={self.arguments.steps}", f"train.seed={self.arguments.seed}",
            "learning_rate.base=1e-3", *own]
        summary = self.folder / "summary.json"
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", self.arguments.ranks, "--oversubscribe", "--summary", summary,
              *(word for setting in settings for word in ("--set", setting))])
        said = json.loads(summary.read_text(encoding="utf-8"))
        return said["validation"]["last"]["loss"], said["sent"][0]["total"] / self.arguments.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rows", choices=["wire", "optimizers"], default="wire")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the weights that all begin with, and of the order of samples")
    parser.add_argument("--bound", type=float, help="fail where a loss is off the first row's by more, in percent")
    arguments = parser.parse_args()
    arguments.build = arguments.build.absolute()
    with tempfile.TemporaryDirectory() as folder:
        bench, rows, far = Bench(arguments, pathlib.Path(folder)), [], []
        for name, own in {"wire": wire, "optimizers": optimizers}[arguments.rows](arguments.steps).items():
            loss, sent = bench.run(own)
            first_loss, first_sent = (first_loss, first_sent) if rows else (loss, sent)
            percent = 100 * (loss / first_loss - 1)
            rows.append([name, f"{loss:.4f}", f"{percent:+.2f} %", f"{sent / 1e6:.2f} MB", f"{first_sent / sent:.2f}"])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
            off = abs(percent) if arguments.rows == "wire" else percent
            if arguments.bound is not None and name != UNBOUNDED and not off <= arguments.bound:
                far.append(name)
        first = rows[0][0]
        print(markdown([{"wire": "on the wire", "optimizers": "optimizer"}[arguments.rows], "loss", f"over {first}", "sent a step and rank", "times less"], rows))
    if far:
        sys.exit(f"further than {arguments.bound} % from {first}: {'; '.join(far)}")


if __name__ == "__main__":
    main()
