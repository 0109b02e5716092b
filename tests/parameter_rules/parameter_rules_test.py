#!/usr/bin/env python3
"""Rules for parameters by name: what is frozen, its own learning rate, its own weight decay.

parameters.py --strata PATH --plugins FOLDER [--projects DIR] [--work DIR]

- A frozen parameter has every bit it started with, the others move; at every layout losses are those of one rank to LOSS_BOUND.
- It has no gradient and no optimizer state: the plan's bytes are those of the others, and what a run holds is what its plan says.
- Rules that change nothing change no bit. The later of two rules wins. Rules that fit nothing are refused with the nearest names.
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import TINY_MODELS, Engine, built_plugins, ledger_difference, read_weights, relative_difference, set_arguments, write_tokens  # noqa: E402

LOSS_BOUND = 2e-6
SGD_BOUND = 2e-4  # weight decay alone moves the largest weight of a tensor by a thousandth; three results are rounded by 6e-8 of it
ZERO3 = ["partitioner.plugin=zero3", "train.micro_batch=2"]
PIPELINE = ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]
# name -> ranks, settings; the first is what the others are compared with
LAYOUTS = {
    "1 rank": (1, ["train.micro_batch=12"]),
    "2 ranks ddp": (2, ["train.micro_batch=3"]),
    "2 ranks zero3": (2, ZERO3),
    "3 ranks zero3": (3, ZERO3),
    "2 ranks round_robin": (2, ["partitioner.plugin=round_robin", "train.micro_batch=3"]),
    "2 stages": (2, PIPELINE),
    "2 x 2, zero3, checkpointing": (4, [*PIPELINE, "partitioner.plugin=zero3", "activations.checkpoint=all", "train.micro_batch=3"]),
    "2 ranks zero3, optimizer on cpu": (2, [*ZERO3, "offload.optimizer.plugin=cpu"]),
    "2 ranks zero3, bf16": (2, [*ZERO3, "precision.plugin=bf16"]),
}
# name -> rule, whether it freezes the parameter of this name
FREEZING = {
    "the embedding": ('[{match: "*embed_in*", trainable: false}]', lambda name: "embed_in" in name),
    "the first layers": ('[{match: ["*embed_in*", "*layers.[01].*"], trainable: false}]', lambda name: any(
        part in name for part in ("embed_in", "layers.0.", "layers.1."))),
    "the head": ('[{match: "embed_out*", trainable: false}]', lambda name: "embed_out" in name),
    "all but the head": ('[{match: "*", trainable: false}, {match: "embed_out.weight", trainable: true}]', lambda name: "embed_out" not in name),
    "all but the norms": ('[{match: "*", trainable: false}, {match: "*layer*norm*", trainable: true}]', lambda name: "norm" not in name),
    "the last block and every bias": ('[{match: "*.bias", trainable: false}, {match: "*layers.2.*", trainable: false}]',
                                      lambda name: name.endswith(".bias") or "layers.2." in name),
}


class Parameters:
    def __init__(self, options):
        self.engine = Engine(options.strata, [options.plugins] + built_plugins(options.projects), options.work)
        self.passed = self.failed = 0
        self.tokens = os.path.join(self.engine.work, "tokens.bin")
        write_tokens(self.tokens, 4000)
        self.config = self.engine.write_config("run.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 16, **TINY_MODELS["gpt_neox"]}, "data": {"path": self.tokens},
            "train": {"steps": 4, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2}, "communicator": {"timeout_s": 60}})
        self.config = self.with_start()

    def with_start(self):
        """The same from an exported folder, in which no bias is 0 and no norm is 1: what does not move is told from what has no gradient."""
        start = os.path.join(self.engine.work, "start")
        subprocess.run([self.engine.strata, "train", self.config, "--quiet", "--export", start, "--set", "train.micro_batch=12"],
                       env=self.engine.environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
        self.start = read_weights(start)
        return self.engine.write_config("from_start.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 16, "init": start}, "data": {"path": self.tokens},
            "train": {"steps": 4, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2}, "communicator": {"timeout_s": 60}})

    def say(self, good, name, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print("passed" if good else "FAILED", f"{name}: {text}", flush=True)

    def train(self, layout, rules="", more=()):
        ranks, settings = LAYOUTS[layout]
        result = self.engine.train(self.config, ranks, [*settings, *more, *([f"parameters={rules}"] if rules else [])], with_weights=True)
        if result.status != 0:
            raise RuntimeError(f"{result.command}: {result.output}")
        return result

    def check_frozen(self, what, layout, reference):
        rules, frozen = FREEZING[what]
        name = f"{what} frozen, {layout}"
        ranks, settings = LAYOUTS[layout]
        run = self.train(layout, rules)
        start = self.start if "bf16" not in layout else rounded(self.start, frozen)  # kept in the precision's own format
        wrong = [tensor for tensor, values in run.weights.items() if (values == start[tensor]) != frozen(tensor)]
        self.say(not wrong, name, f"moved and unmoved as asked, {len(run.weights)} tensors" if not wrong else f"wrong: {wrong}")
        plan = self.engine.plan(self.config, ranks, [*settings, f"parameters={rules}"])
        difference = ledger_difference(run.summary, plan)
        self.say(difference is None, f"{name}: memory", difference or "what the plan says")
        if reference and "bf16" not in layout:
            distance = relative_difference(run.losses, reference.losses)
            self.say(distance <= LOSS_BOUND, f"{name}: losses", f"off by {distance:.1g}, at most {LOSS_BOUND:.1g}")
        return run

    def check_plan(self, what):
        """One rank of ddp: bytes by hand."""
        rules, frozen = FREEZING[what]
        trainable = sum(len(values) for tensor, values in self.start.items() if not frozen(tensor))
        found = self.engine.plan(self.config, 1, [*LAYOUTS["1 rank"][1], f"parameters={rules}"])[0]
        held = {key: found["peak_bytes"]["device"][key] for key in ("gradient", "optimizer", "parameter")}
        expected = {"gradient": 4 * trainable, "optimizer": 8 * trainable, "parameter": 4 * sum(map(len, self.start.values()))}
        self.say(held == expected and found["trainable"] == trainable, f"plan of {what} frozen", f"{held}, expected {expected}")

    def check_neutral(self):
        for layout in ("1 rank", "2 ranks zero3"):
            plain = self.train(layout)
            for rules in ('[{match: "*", learning_rate_factor: 1}]', '[{match: "*", weight_decay: 0.01, trainable: true}]',
                          '[{match: "*", trainable: false}, {match: "*", trainable: true}]', '[{match: "*", learning_rate: 1e-2}]'):
                run = self.train(layout, rules)
                same = run.losses == plain.losses and run.weights == plain.weights
                self.say(same, f"{rules}, {layout}", "changes no bit" if same else "differs from the run without rules")
            still = self.train(layout, '[{match: "*layers.0.*", learning_rate_factor: 0}]')
            wrong = [name for name, values in still.weights.items() if (values == self.start[name]) != ("layers.0." in name)]
            self.say(not wrong, f"learning_rate_factor 0, {layout}", "keeps what it names" if not wrong else f"wrong: {wrong}")

    def check_optimizers(self):
        """SGD without momentum: an update is linear in the learning rate, and the decay of a parameter is its own."""
        sgd = ["optimizer.plugin=sgd", "optimizer.weight_decay=0.1", "train.steps=1", "train.clip=0"]

        def moved(rules):
            weights = self.train("2 ranks zero3", rules, sgd).weights
            return {name: [after - before for after, before in zip(values, self.start[name])] for name, values in weights.items()}

        plain, half = moved(""), moved('[{match: "*dense*", learning_rate_factor: 0.5}]')
        undecayed = moved('[{match: "*dense*", weight_decay: 0}]')
        worst = {}  # by whether a rule names the parameter: how far off, of its largest update
        for name, values in plain.items():
            own = "dense" in name
            scale = max(map(abs, values))
            error = max(abs(h - v * (0.5 if own else 1)) for h, v in zip(half[name], values, strict=True)) / scale
            decay = max(abs(u - v - (1e-2 * 0.1 * w if own else 0)) for u, v, w in zip(undecayed[name], values, self.start[name], strict=True)) / scale
            worst[own] = max(worst.get(own, (0.0, "")), (error, f"half the learning rate, {name}"), (decay, f"no decay, {name}"))
        for own, kind, bound in ((True, "parameters with a rate and a decay of their own", SGD_BOUND), (False, "the others", 0.0)):
            off, where = worst[own]
            self.say(off <= bound, f"sgd, {kind}", f"off by at most {off:.1g} ({where}), at most {bound:.1g}")

    def refused(self, rules, *words, more=()):
        arguments = ["train", self.config, "--nproc", "2", *set_arguments([*LAYOUTS["2 stages"][1], f"parameters={rules}", *more])]
        done = subprocess.run([self.engine.strata, *arguments], env=self.engine.environment, capture_output=True, text=True, timeout=120)
        lines = done.stderr.splitlines()
        good = done.returncode == 2 and len(lines) == 1 and all(word in lines[0] for word in words)
        self.say(good, f"refused: {rules}", f"status {done.returncode}: {done.stderr.strip()}")

    def check_errors(self):
        self.refused('[{match: "*.biass", weight_decay: 0}]', "--set", "parameters[0].match", "fits no parameter", ".bias")
        self.refused('[{match: "*.bias", weight_decay: 0}, {match: "gpt_neox.embed_inn.weight", trainable: false}]', "parameters[1].match",
                     "gpt_neox.embed_in.weight")
        self.refused('[{match: "*.bias", weight_decya: 0}]', "parameters[0].weight_decya", "did you mean weight_decay?")
        self.refused('[{match: "*.bias"}]', "parameters[0]", "trainable")
        self.refused("[{weight_decay: 0}]", "parameters[0].match must be given")
        self.refused('[{match: "*.bias", weight_decay: -1}]', "parameters[0].weight_decay", "minimum is 0")
        self.refused('[{match: "*.bias", trainable: 5}]', "parameters[0].trainable", "true or false")
        self.refused('[{match: "*.bias", learning_rate: 1, learning_rate_factor: 1}]', "parameters[0]", "one of")
        self.refused('{match: "*.bias", weight_decay: 0}', "parameters", "list")
        self.refused('["*.bias"]', "parameters[0]")
        self.refused('[{match: "*", trainable: false}]', "every parameter is frozen")


def rounded(start, frozen):
    import array
    import struct

    def to_bf16(value):
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return struct.unpack("<f", struct.pack("<I", bits))[0]

    return {name: array.array("f", map(to_bf16, values)) if frozen(name) else values for name, values in start.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--plugins", required=True)
    parser.add_argument("--projects", default="")
    parser.add_argument("--work")
    parser.add_argument("--full", action="store_true", help="every layout with two ways to freeze, not one")
    options = parser.parse_args()
    if options.work:
        os.makedirs(options.work, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run", dir=options.work) as options.work:
        test = Parameters(options)
        for what in FREEZING:
            test.check_plan(what)
            reference = test.check_frozen(what, "1 rank", None)
            for layout in list(LAYOUTS)[1:] if what in ("the embedding", "the last block and every bias")[:2 if options.full else 1] else ("2 ranks zero3", "2 stages"):
                test.check_frozen(what, layout, reference)
        test.check_neutral()
        test.check_optimizers()
        test.check_errors()
    print(f"{test.passed} passed, {test.failed} failed")
    return 1 if test.failed else 0


sys.exit(main())
