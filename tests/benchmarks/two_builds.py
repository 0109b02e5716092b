#!/usr/bin/env python3
"""An older build compared with this one: equal losses, gradients and weights to the last bit, step time and memory as ratios.

For each row of CASES both builds train the same tiny model from the same config, in turns. Losses, gradient norms, fingerprints of all
gradients and the exported weights must be equal. Then the new build resumes the old build's checkpoint of half the run: its steps and
its final weights must be those of the uninterrupted run. The ratios are new / old: of the median step times of a turn, with the 95 %
interval of their median, of the largest resident memory of any rank, and of the bytes that all ranks sent. The exit status is 1 if
anything but these ratios differs. Python's standard library only.

  python3 tests/benchmarks/two_builds.py --old ../old/build/release --new build/release
  python3 tests/benchmarks/two_builds.py --old ../old/build/release --new build/release --only zero3 --turns 10
"""
import argparse
import json
import pathlib
import random
import shutil
import statistics
import struct
import sys
import tempfile

from command import call
from table import interval, interval_name, markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
STEPS = 6
NVME = "offload.{0}.plugin=nvme offload.{0}.nvme.path=FOLDER"
# Ranks and settings by name.
CASES = {
    "ddp": (2, "partitioner.plugin=ddp"),
    "ddp, one rank": (1, "partitioner.plugin=ddp"),
    "zero1, 3 ranks": (3, "partitioner.plugin=zero1"),
    "zero2": (2, "partitioner.plugin=zero2"),
    "zero3": (2, "partitioner.plugin=zero3"),
    "zero3 bf16": (2, "partitioner.plugin=zero3 precision.plugin=bf16"),
    "hybrid, 4 ranks": (4, "partitioner.plugin=hybrid partitioner.hybrid.shard_size=2"),
    "zero3 fp8": (2, "partitioner.plugin=zero3 precision.plugin=fp8"),
    "zero3 int8 weights": (2, "partitioner.plugin=zero3 partitioner.zero3.weights_on_wire=int8"),
    "ddp fp16": (2, "partitioner.plugin=ddp precision.plugin=fp16 precision.fp16.initial_scale_power=10"),
    "zero3 over gloo": (2, "partitioner.plugin=zero3 communicator.plugin=gloo"),
    "1f1b": (2, "partitioner.plugin=ddp parallel.pipeline=2 scheduler.plugin=1f1b"),
    "gpipe": (2, "partitioner.plugin=ddp parallel.pipeline=2 scheduler.plugin=gpipe"),
    "1f1b, zero2": (4, "partitioner.plugin=zero2 parallel.pipeline=2 scheduler.plugin=1f1b"),
    "interleaved": (2, "partitioner.plugin=ddp parallel.pipeline=2 scheduler.plugin=interleaved_1f1b parallel.chunks=2"),
    "zero bubble": (2, "partitioner.plugin=zero1 parallel.pipeline=2 scheduler.plugin=zero_bubble_h1"),
    "dualpipe_v": (2, "partitioner.plugin=ddp parallel.pipeline=2 scheduler.plugin=dualpipe_v"),
    "l2l": (2, "partitioner.plugin=zero3 scheduler.plugin=l2l"),
    "muon": (2, "partitioner.plugin=zero1 optimizer.plugin=muon"),
    "onebit_adam": (2, "partitioner.plugin=ddp train.clip=0 optimizer.plugin=onebit_adam optimizer.onebit_adam.freeze_step=3"),
    "pipedream": (2, "partitioner.plugin=ddp parallel.pipeline=2 scheduler.plugin=pipedream train.clip=0"),
    "tensor parallelism": (2, "partitioner.plugin=ddp parallel.tensor=2"),
    "recomputation": (2, "partitioner.plugin=zero3 activations.checkpoint=all"),
    "cpu tier": (2, "partitioner.plugin=zero2 offload.optimizer.plugin=cpu"),
    "nvme tier": (2, "partitioner.plugin=zero3 " + " ".join(NVME.format(slot) for slot in ("parameters", "optimizer"))),
    "delayed": (2, "partitioner.plugin=zero2 step_policy=delayed"),
    "speculative": (2, "partitioner.plugin=zero2 step_policy=speculative"),
    "local": (2, "partitioner.plugin=hybrid partitioner.hybrid.shard_size=1 step_policy=local local.steps=2"),
}


def write_tokens(path):
    draw = random.Random(1)
    path.write_bytes(b"".join(struct.pack("<H", draw.randrange(300)) for _ in range(60000)))


class Build:
    def __init__(self, folder, tokens, work):
        self.strata, self.tokens, self.work = folder.absolute() / "bin" / "strata", tokens, work

    def train(self, ranks, settings, *options, steps=STEPS):
        """Returns the metrics of each step, the summary and the bytes of the exported weights."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        metrics, summary, export = self.work / "metrics.jsonl", self.work / "summary.json", self.work / "export"
        common = [f"data.path={self.tokens}", "model.vocabulary=300", "model.seq_len=32", f"train.steps={steps}", "train.micro_batch=2",
                  "train.global_batch=48", "learning_rate.warmup=2"]
        words = [word for setting in (*common, *settings.replace("FOLDER", str(self.work)).split()) for word in ("--set", setting)]
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", ranks, *words, "--metrics", metrics,
              "--digests", "--summary", summary, "--export", export, *options])
        steps_made = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        return ([{key: step.get(key) for key in ("loss", "grad_norm", "gradients", "applied")} for step in steps_made],
                json.loads(summary.read_text(encoding="utf-8")),
                b"".join(file.read_bytes() for file in sorted(export.glob("*.safetensors"))))


def peak(summary):
    return max(rank["peak_rss_mib"] for rank in summary["memory"])


def sent(summary):
    return sum(rank["total"] for rank in summary["sent"])


def compare(name, old, new, turns, folder):
    """The row of a case and whether all of it is equal."""
    ranks, settings = CASES[name]
    times, memory, traffic, differences = [], [], [], set()
    for turn in range(turns):
        order = (old, new) if turn % 2 == 0 else (new, old)
        results = {build: build.train(ranks, settings) for build in order}
        for index, what in ((0, "steps"), (2, "weights")):
            if results[old][index] != results[new][index]:
                differences.add(what)
        times.append(results[new][1]["median_step_s"] / results[old][1]["median_step_s"])
        memory.append(peak(results[new][1]) / peak(results[old][1]))
        traffic.append(sent(results[new][1]) / (sent(results[old][1]) or 1))
    whole_steps, _, whole_weights = results[new]
    saved = folder / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    checkpoints = f"{settings} checkpoint.path={saved}"
    old.train(ranks, f"{checkpoints} checkpoint.every={STEPS // 2} checkpoint.keep=0")
    steps, _, weights = new.train(ranks, settings, "--resume", saved / f"step-{STEPS // 2}")
    if steps != whole_steps[STEPS // 2:] or weights != whole_weights:
        differences.add("resume of the old checkpoint")
    low, high = interval(times)
    return [name, str(ranks), ", ".join(sorted(differences)) or "none", f"{statistics.median(times):.2f} ({low:.2f} .. {high:.2f})",
            f"{statistics.median(memory):.2f}", f"{statistics.median(traffic):.4f}" if ranks > 1 else ""], not differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=pathlib.Path, required=True, help="build folder of the older program")
    parser.add_argument("--new", type=pathlib.Path, required=True, help="build folder of this program")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help="of " + "; ".join(CASES))
    parser.add_argument("--turns", type=int, default=6)
    arguments = parser.parse_args()
    if arguments.turns < 1:
        parser.error("--turns is at least 1")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens = folder / "tokens.bin"
        write_tokens(tokens)
        old, new = Build(arguments.old, tokens, folder / "old"), Build(arguments.new, tokens, folder / "new")
        rows, equal = [], True
        for case in arguments.only:
            row, is_equal = compare(case, old, new, arguments.turns, folder)
            equal = equal and is_equal
            rows.append(row)
            print(" | ".join(row), file=sys.stderr, flush=True)
        name = interval_name(arguments.turns)
        print(markdown(["case", "ranks", "differences", f"step time, new / old ({name})", "memory, new / old", "bytes sent, new / old"], rows))
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
