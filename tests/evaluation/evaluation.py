#!/usr/bin/env python3
"""Validation during training, and `strata eval`.

evaluation.py --strata PATH --plugins FOLDER [--projects DIR] [--work DIR]

- The loss of some weights on some samples is at every layout, to LOSS_BOUND, and whatever their number, the one that a training step
  of one process finds on them.
- A training with validation gives the bits of the one without, losses and weights, and holds what its dry run says.
- What the last validation found is what `strata eval` finds of the exported weights.
"""
import argparse
import filecmp
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import TINY_MODELS, Engine, built_plugins, ledger_difference, relative_difference, set_arguments, write_tokens  # noqa: E402

LOSS_BOUND = 1e-6
SEQUENCE = 16
STEPS = 5
ZERO3 = ["partitioner.plugin=zero3", "train.micro_batch=2"]
PIPELINE = ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]
# name -> ranks, settings
LAYOUTS = {
    "1 rank": (1, ["train.micro_batch=12"]),
    "1 rank, accumulation": (1, ["train.micro_batch=3"]),
    "1 rank zero3": (1, ZERO3),
    "2 ranks zero3": (2, ZERO3),
    "3 ranks zero3": (3, ZERO3),
    "2 ranks round_robin": (2, ["partitioner.plugin=round_robin", "train.micro_batch=3"]),
    "2 stages": (2, PIPELINE),
    "2 x 2, zero3, checkpointing": (4, PIPELINE + ["partitioner.plugin=zero3", "activations.checkpoint=all", "train.micro_batch=3"]),
    "2 ranks zero3, optimizer on cpu": (2, ZERO3 + ["offload.optimizer.plugin=cpu"]),
}
TRAINED = {**{name: LAYOUTS[name] for name in ("1 rank, accumulation", "2 ranks zero3", "2 stages", "2 ranks zero3, optimizer on cpu")},
           "2 ranks zero3, bf16": (2, ZERO3 + ["precision.plugin=bf16"])}


class Evaluation:
    def __init__(self, options):
        self.engine = Engine(options.strata, [options.plugins] + built_plugins(options.projects), options.work)
        self.passed = self.failed = 0
        self.tokens = self.file("train.bin", 4000, 5)
        self.held_out = self.file("held_out.bin", 29 * SEQUENCE + 7, 6)  # 29 samples: none of the global batches divides that
        self.config = self.engine.write_config("run.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": SEQUENCE, **TINY_MODELS["gpt_neox"]}, "data": {"path": self.tokens},
            "train": {"steps": STEPS, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2},
            "communicator": {"timeout_s": 60}})

    def file(self, name, count, seed):
        path = os.path.join(self.engine.work, name)
        write_tokens(path, count, seed)
        return path

    def say(self, good, name, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print("passed" if good else "FAILED", f"{name}: {text}", flush=True)

    def close(self, name, value, expected, bound=LOSS_BOUND):
        distance = relative_difference([value], [expected])
        self.say(distance <= bound, name, f"{value:.7f} is off by {distance:.1g}, at most {bound:.1g}")

    def equal(self, name, value, expected):
        self.say(value == expected, name, f"{value}, expected {expected}")

    def evaluate(self, weights, ranks=1, settings=(), source="--init"):
        return self.engine.call("eval", self.config, source, weights, "--data", self.held_out, "--quiet", "--format", "json",
                                *(["--nproc", str(ranks)] if ranks > 1 else []), *set_arguments(settings))

    def exported(self, name, settings):
        folder = os.path.join(self.engine.work, name)
        arguments = [self.engine.strata, "train", self.config, "--quiet", "--export", folder, *set_arguments(settings)]
        subprocess.run(arguments, env=self.engine.environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
        return folder

    def trained_on(self, init, samples):
        """The loss of the first `samples`, as one process finds it in a training step over all of them at once, before its update."""
        step = self.engine.train(self.config, 1, [f"model.init={init}", f"data.path={self.held_out}", "data.order=sequential", "train.steps=1",
                                                  f"train.global_batch={samples}", f"train.micro_batch={samples}"])
        return step.losses[0]

    def check_layouts(self, init, full):
        for samples, expected in (("auto", 29), (1, 1), (13, 13), (12, 12), (1000, 29))[:5 if full else 3]:
            reference = self.trained_on(init, expected)
            for name, (ranks, settings) in LAYOUTS.items():
                if samples not in ("auto", 13) and ranks == 1:
                    continue
                result = self.evaluate(init, ranks, [*settings, f"validation.samples={samples}"])
                self.close(f"loss of {expected} samples beside a training step's, {name}", result["loss"], reference)
                if (result["samples"], result["tokens"]) != (expected, expected * SEQUENCE):
                    self.say(False, name, f"counts {result['samples']} samples and {result['tokens']} tokens of {expected} samples")
                if abs(result["perplexity"] / math.exp(result["loss"]) - 1) > 1e-9:
                    self.say(False, name, f"perplexity {result['perplexity']} of loss {result['loss']}")

    def train(self, ranks, settings):
        """What the program said, its steps, its summary and the exported folder."""
        folder = tempfile.mkdtemp(prefix="training", dir=self.engine.work)
        outputs = {key: os.path.join(folder, key) for key in ("metrics", "summary", "export")}
        arguments = [self.engine.strata, "train", self.config, "--nproc", str(ranks), *set_arguments(settings)]
        for key, path in outputs.items():
            arguments += ["--" + key, path]
        output = subprocess.run(arguments, env=self.engine.environment, check=True, timeout=120, capture_output=True, text=True).stdout
        with open(outputs["metrics"]) as file:
            steps = [json.loads(line) for line in file]
        with open(outputs["summary"]) as file:
            return output, steps, json.load(file), outputs["export"]

    def check_training(self, name, ranks, settings):
        _, plain, _, plain_export = self.train(ranks, settings)
        validation = [f"validation.path={self.held_out}", "validation.every=2"]
        output, steps, summary, export = self.train(ranks, settings + validation)
        for key in ("loss", "grad_norm"):
            self.equal(f"{name}: {key} beside the run without validation", [step[key] for step in steps], [step[key] for step in plain])
        same = filecmp.cmp(*(os.path.join(one, "model.safetensors") for one in (plain_export, export)), shallow=False)
        self.say(same, f"{name}: weights beside the run without validation", "bitwise equal" if same else "differ")
        difference = ledger_difference(summary, self.engine.plan(self.config, ranks, settings + validation))
        self.say(difference is None, f"{name}: memory", difference or "what the plan says")
        found = {step["step"]: step["validation"] for step in steps if "validation" in step}
        self.equal(f"{name}: steps with a validation", list(found), [1, 3, 4])
        best = min(found, key=lambda step: found[step]["loss"])
        self.equal(f"{name}: the summary", summary["validation"], {"last": {**found[4], "step": 4}, "best": {**found[best], "step": best}})
        self.say(f"validation loss {found[3]['loss']:.4f}, perplexity" in output, f"{name}: progress", "names the validation's loss")
        self.close(f"{name}: last validation beside strata eval", found[4]["loss"], self.evaluate(export, ranks, settings)["loss"])

    def check_checkpoint(self, init):
        """Saved on two stages, evaluated at other layouts; its weights are those of the export of the same training."""
        folder = os.path.join(self.engine.work, "checkpoints")
        ranks, settings = LAYOUTS["2 stages"]
        export = self.train(ranks, [*settings, f"checkpoint.path={folder}", f"model.init={init}"])[3]
        expected = self.evaluate(export)["loss"]
        for name in ("1 rank", "2 ranks zero3", "2 stages"):
            ranks, settings = LAYOUTS[name]
            self.close(f"a checkpoint, {name}", self.evaluate(folder, ranks, settings, source="--checkpoint")["loss"], expected)
        self.refused("another model's checkpoint", ["layers", "num_hidden_layers"], "eval", self.config, "--checkpoint", folder, "--data", self.held_out,
                     "--set", "model.layers=2")
        shard = glob.glob(os.path.join(folder, f"step-{STEPS}", "*.safetensors"))[0]
        with open(shard, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.refused("a damaged checkpoint", [os.path.basename(shard)], "eval", self.config, "--checkpoint", folder, "--data", self.held_out)
        self.refused("no checkpoint", ["nowhere"], "eval", self.config, "--checkpoint", "nowhere", "--data", self.held_out)

    def refused(self, name, words, *arguments):
        done = subprocess.run([self.engine.strata, *arguments], env=self.engine.environment, capture_output=True, text=True, timeout=120)
        lines = done.stderr.splitlines()
        good = done.returncode == 2 and len(lines) == 1 and all(word in lines[0] for word in words)
        self.say(good, name, f"status {done.returncode}: {done.stderr.strip()}")

    def check_errors(self, init):
        short = self.file("short.bin", SEQUENCE, 7)
        self.refused("no weights", ["--init"], "eval", self.config, "--data", self.held_out)
        self.refused("no data", ["--data", "validation.path"], "eval", self.config, "--init", init)
        self.refused("no folder", ["nowhere"], "eval", self.config, "--init", "nowhere", "--data", self.held_out)
        self.refused("no file", ["nowhere.bin"], "eval", self.config, "--init", init, "--data", "nowhere.bin")
        self.refused("a file without a sample", ["short.bin"], "eval", self.config, "--init", init, "--data", short)
        self.refused("every without a path", ["validation.every is 3", "validation.path"], "train", self.config, "--set", "validation.every=3")
        self.refused("no sample asked for", ["validation.samples"], "train", self.config, "--set", "validation.samples=0")
        self.refused("training on a file without a sample", ["short.bin"], "train", self.config, "--set", f"validation.path={short}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--plugins", required=True)
    parser.add_argument("--projects", default="")
    parser.add_argument("--work")
    parser.add_argument("--full", action="store_true", help="more numbers of samples")
    options = parser.parse_args()
    if options.work:
        os.makedirs(options.work, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run", dir=options.work) as options.work:
        test = Evaluation(options)
        init = test.exported("init", ["train.micro_batch=12", "train.steps=2"])
        test.check_layouts(init, options.full)
        for name, (ranks, settings) in TRAINED.items():
            test.check_training(name, ranks, settings)
        test.check_checkpoint(init)
        test.check_errors(init)
    print(f"{test.passed} passed, {test.failed} failed")
    return 1 if test.failed else 0


sys.exit(main())
