"""Optimizers beside torch's classes, from the same weights and tokens, wherever the parameters are cut. Weights after STEPS
steps, role by role (comparison.role_of): to 1e-6 of the role's largest element, but where torch's own weights under 1, 2
and 4 micro-batches spread by more, as where a gradient is nothing but rounding (the keys' bias), to SPREAD_FACTOR times that. What is
compared is the difference that nine of ten elements stay below. A run with another option must be far outside of the bound. That one
update equals torch's to 1e-6 is for tests/unit/optimizer; AdamW is in training_test.py.
"""
import dataclasses
import functools
import json
import typing

import pytest
import reference
import torch
from comparison import largest_error, nine_of_ten, role_of

VOCABULARY = 1009
STEPS = 3
BOUND = 1e-6
SPREAD_FACTOR = 3.0
DECAY = 0.1
LAYOUTS = {
    "1 rank ddp": (1, ("train.micro_batch=12",)),
    "2 ranks ddp": (2, ("train.micro_batch=3",)),
    "3 ranks zero1": (3, ("partitioner.plugin=zero1", "train.micro_batch=4")),
    "2 ranks zero2": (2, ("partitioner.plugin=zero2", "train.micro_batch=3")),
    "3 ranks zero3": (3, ("partitioner.plugin=zero3", "train.micro_batch=2")),
    "3 ranks zero3 in small pieces": (3, ("partitioner.plugin=zero3", "partitioner.reduce_bucket_size=500", "train.micro_batch=4")),
    "4 ranks hybrid": (4, ("partitioner.plugin=hybrid", "train.micro_batch=3")),
    "2 stages 1f1b": (2, ("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=3")),
    "2 ranks zero3, optimizer on cpu": (2, ("partitioner.plugin=zero3", "train.micro_batch=3", "offload.optimizer.plugin=cpu")),
}
FEW = ("1 rank ddp", "3 ranks zero3 in small pieces", "2 stages 1f1b", "2 ranks zero3, optimizer on cpu")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    torch: typing.Callable  # of parameters and rate
    ours: dict
    layouts: typing.Iterable
    others: tuple  # (option, another value than torch has)


OPTIMIZERS = {
    "adafactor": Optimizer(lambda parameters, rate: torch.optim.Adafactor(parameters, lr=rate, weight_decay=DECAY), {"plugin": "adafactor"}, LAYOUTS,
                           (("beta2_decay", -0.7), ("d", 1.1), ("eps", [1e-7, 0.1]))),
    "adam": Optimizer(lambda parameters, rate: torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=DECAY),
                      {"plugin": "adamw", "decoupled": False, "betas": [0.9, 0.95]}, FEW, (("decoupled", True),)),
    "adagrad": Optimizer(lambda parameters, rate: torch.optim.Adagrad(parameters, lr=rate, lr_decay=0.1, weight_decay=DECAY, initial_accumulator_value=1e-3),
                         {"plugin": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 1e-3}, FEW,
                         (("lr_decay", 0.11), ("initial_accumulator_value", 1.1e-3))),
}


class Beside:
    """One optimizer and torch's training with it."""

    def __init__(self, runs, name):
        self.runs, self.optimizer = runs, OPTIMIZERS[name]
        self.training = reference.Training(steps=STEPS, sequence=32, learning_rate=1e-2)
        self.init, self.tokens_file = runs.work / name, runs.work / "tokens.bin"
        reference.make_model(64, 3, 4, VOCABULARY).save_pretrained(self.init)
        reference.make_tokens(self.tokens_file, VOCABULARY, STEPS * self.training.global_batch * self.training.sequence + 1)
        self.theirs = self.their_training()
        weights = self.theirs.weights
        others = [nine_of_ten(weights, self.their_training(count).weights) for count in (2, 4)]
        largest = {}
        for parameter, value in weights.items():
            role = role_of(parameter)
            largest[role] = max(largest.get(role, 0.0), value.abs().max().item())
        self.bounds = {role: max(BOUND * value, *(SPREAD_FACTOR * other[role] for other in others)) for role, value in largest.items()}

    def their_training(self, micro_batches=1):
        tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        model = reference.open_folder(self.init)[0]
        optimizer = self.optimizer.torch(model.parameters(), self.training.learning_rate)
        return reference.train_with(optimizer, model, tokens, self.training, micro_batches)

    def train(self, layout, **others):
        ranks, settings = LAYOUTS[layout]
        ours = json.dumps({**self.optimizer.ours, "weight_decay": DECAY, **others})
        rate = f"learning_rate.base={self.training.learning_rate}"
        return self.runs.train(self.init, self.tokens_file, STEPS, ranks, ("model.seq_len=32", f"optimizer={ours}", rate, *settings))

    def distance(self, run):
        """The largest over roles, over the role's bound."""
        weights = reference.weights_of(reference.open_folder(run.export)[0])
        return max((value / self.bounds[role], role) for role, value in nine_of_ten(self.theirs.weights, weights).items())


@pytest.fixture(scope="module")
def beside(runs):
    return functools.cache(lambda name: Beside(runs, name))


@pytest.mark.parametrize("name, layout", [(name, layout) for name, optimizer in OPTIMIZERS.items() for layout in optimizer.layouts])
def test_torch(beside, name, layout):
    one = beside(name)
    run = one.train(layout)
    assert largest_error(run.losses, one.theirs.losses) <= 3e-5
    distance, role = one.distance(run)
    print(f"at most {distance:.2g} of the bound, in {role}")
    assert distance <= 1


@pytest.mark.parametrize("name, option, value", [(name, *other) for name, optimizer in OPTIMIZERS.items() for other in optimizer.others])
def test_another_option_is_seen(beside, name, option, value):
    one = beside(name)
    assert one.distance(one.train("1 rank ddp", **{option: value}))[0] >= 10
