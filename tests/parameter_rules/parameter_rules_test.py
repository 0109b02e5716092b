"""Rules for parameters by name: what is frozen, its own learning rate, its own weight decay.

- A frozen parameter has every bit it started with, the others move; at every layout losses are those of one rank to LOSS_BOUND.
- It has no gradient and no optimizer state: the plan's bytes are those of the others, and what a run holds is what its plan says.
- Rules that change nothing change no bit. The later of two rules wins. Rules that fit nothing are refused with the nearest names.

Ranks are threads, but where rules are refused.
"""
import array
import os
import struct

import pytest
from commands import call, check_refused
from engine import TINY_MODELS, ledger_difference, read_weights, relative_difference, set_arguments, write_tokens
from trainers import Trainers

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
    def __init__(self, engine, trainer):
        self.engine, self.trainers, self.frozen_runs, self.plain_runs = engine, Trainers(trainer, engine), {}, {}
        tokens = os.path.join(engine.work, "tokens.bin")
        write_tokens(tokens, 4000)
        tree = {"device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 16, **TINY_MODELS["gpt_neox"]}, "data": {"path": tokens},
                "train": {"steps": 4, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2}, "communicator": {"timeout_s": 60}}
        # From an exported folder, in which no bias is 0 and no norm is 1: what does not move is told from what has no gradient.
        start = os.path.join(engine.work, "start")
        call([engine.strata, "train", engine.write_config("run.json", tree), "--quiet", "--export", start, "--set", "train.micro_batch=12"],
             env=engine.environment)
        self.start = read_weights(start)
        self.config = engine.write_config("from_start.json", {**tree, "model": {"plugin": "gpt_neox", "seq_len": 16, "init": start}})

    def train(self, layout, rules="", more=()):
        """The run, and what its plan says of every rank."""
        ranks, settings = LAYOUTS[layout]
        result, plan = self.trainers.train(self.config, ranks, [*settings, *more, *([f"parameters={rules}"] if rules else [])])
        assert result.status == 0, f"{result.command}: {result.output}"
        return result, plan

    def frozen(self, what, layout):
        """A run with something frozen and its plan, once."""
        if (what, layout) not in self.frozen_runs:
            self.frozen_runs[what, layout] = self.train(layout, FREEZING[what][0])
        return self.frozen_runs[what, layout]

    def plain(self, layout):
        """The run without rules, once."""
        if layout not in self.plain_runs:
            self.plain_runs[layout], _ = self.train(layout)
        return self.plain_runs[layout]


@pytest.fixture(scope="module")
def parameters(engine_with_projects, build):
    return Parameters(engine_with_projects, build / "bin/matrix_trainer")


def frozen_layouts():
    """(what is frozen, layout): every layout with one way to freeze, and with --full with a second."""
    for what in FREEZING:
        for layout in LAYOUTS:
            few = layout in ("1 rank", "2 ranks zero3", "2 stages") or what == "the embedding"
            if few or what == "the last block and every bias":
                yield pytest.param(what, layout, marks=[] if few else pytest.mark.full)


@pytest.mark.parametrize("what, layout", frozen_layouts())
def test_frozen(parameters, what, layout):
    (_, frozen), (run, plan) = FREEZING[what], parameters.frozen(what, layout)
    start = parameters.start if "bf16" not in layout else rounded(parameters.start, frozen)  # kept in the precision's own format
    wrong = [tensor for tensor, values in run.weights.items() if (values == start[tensor]) != frozen(tensor)]
    assert not wrong, "moved, or stood still, against the rules"
    assert not ledger_difference(run.summary, plan)
    if layout != "1 rank" and "bf16" not in layout:
        assert relative_difference(run.losses, parameters.frozen(what, "1 rank")[0].losses) <= LOSS_BOUND


@pytest.mark.parametrize("what", FREEZING)
def test_plan(parameters, what):
    """One rank of ddp: bytes by hand."""
    rules, frozen = FREEZING[what]
    trainable = sum(len(values) for tensor, values in parameters.start.items() if not frozen(tensor))
    found = parameters.engine.plan(parameters.config, 1, [*LAYOUTS["1 rank"][1], f"parameters={rules}"])[0]
    held = {key: found["peak_bytes"]["device"][key] for key in ("gradient", "optimizer", "parameter")}
    assert held == {"gradient": 4 * trainable, "optimizer": 8 * trainable, "parameter": 4 * sum(map(len, parameters.start.values()))}
    assert found["trainable"] == trainable


@pytest.mark.parametrize("layout", ["1 rank", "2 ranks zero3"])
@pytest.mark.parametrize("rules", ['[{match: "*", learning_rate_factor: 1}]', '[{match: "*", weight_decay: 0.01, trainable: true}]',
                                   '[{match: "*", trainable: false}, {match: "*", trainable: true}]', '[{match: "*", learning_rate: 1e-2}]'])
def test_rules_that_change_no_bit(parameters, rules, layout):
    plain, (run, _) = parameters.plain(layout), parameters.train(layout, rules)
    assert run.losses == plain.losses
    assert run.weights == plain.weights, "weights differ from those of the run without rules"


@pytest.mark.parametrize("layout", ["1 rank", "2 ranks zero3"])
def test_no_learning_rate(parameters, layout):
    still, _ = parameters.train(layout, '[{match: "*layers.0.*", learning_rate_factor: 0}]')
    assert not [name for name, values in still.weights.items() if (values == parameters.start[name]) != ("layers.0." in name)]


def test_sgd(parameters):
    """SGD without momentum: an update is linear in the learning rate, and the decay of a parameter is its own."""
    sgd = ["optimizer.plugin=sgd", "optimizer.weight_decay=0.1", "train.steps=1", "train.clip=0"]

    def moved(rules):
        weights = parameters.train("2 ranks zero3", rules, sgd)[0].weights
        return {name: [after - before for after, before in zip(values, parameters.start[name])] for name, values in weights.items()}

    plain, half = moved(""), moved('[{match: "*dense*", learning_rate_factor: 0.5}]')
    undecayed = moved('[{match: "*dense*", weight_decay: 0}]')
    worst = {}  # by whether a rule names the parameter: how far off, of its largest update
    for name, values in plain.items():
        own = "dense" in name
        scale = max(map(abs, values))
        error = max(abs(h - v * (0.5 if own else 1)) for h, v in zip(half[name], values, strict=True)) / scale
        decay = max(abs(u - v - (1e-2 * 0.1 * w if own else 0)) for u, v, w in zip(undecayed[name], values, parameters.start[name], strict=True)) / scale
        worst[own] = max(worst.get(own, (0.0, "")), (error, f"half the learning rate, {name}"), (decay, f"no decay, {name}"))
    assert worst[True][0] <= SGD_BOUND, f"with a rate and a decay of their own: {worst[True]}"
    assert worst[False][0] <= 0.0, f"the others: {worst[False]}"


@pytest.mark.parametrize("rules, words", [
    ('[{match: "*.biass", weight_decay: 0}]', ["--set", "parameters[0].match", "matches no parameter", ".bias"]),
    ('[{match: "*.bias", weight_decay: 0}, {match: "gpt_neox.embed_inn.weight", trainable: false}]', ["parameters[1].match", "gpt_neox.embed_in.weight"]),
    ('[{match: "*.bias", weight_decya: 0}]', ["parameters[0].weight_decya", "did you mean weight_decay?"]),
    ('[{match: "*.bias"}]', ["parameters[0]", "trainable"]),
    ("[{weight_decay: 0}]", ["parameters[0].match must be given"]),
    ('[{match: "*.bias", weight_decay: -1}]', ["parameters[0].weight_decay", "minimum is 0"]),
    ('[{match: "*.bias", trainable: 5}]', ["parameters[0].trainable", "true or false"]),
    ('[{match: "*.bias", learning_rate: 1, learning_rate_factor: 1}]', ["parameters[0]", "learning_rate and learning_rate_factor are both given"]),
    ('{match: "*.bias", weight_decay: 0}', ["parameters", "list"]),
    ('["*.bias"]', ["parameters[0]"]),
    ('[{match: "*", trainable: false}]', ["every parameter is frozen"])])
def test_refused(parameters, rules, words):
    engine = parameters.engine
    check_refused(engine.run("train", parameters.config, "--nproc", "2", *set_arguments([*LAYOUTS["2 stages"][1], f"parameters={rules}"])), *words)


def rounded(start, frozen):
    def to_bf16(value):
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return struct.unpack("<f", struct.pack("<I", bits))[0]

    return {name: array.array("f", map(to_bf16, values)) if frozen(name) else values for name, values in start.items()}
