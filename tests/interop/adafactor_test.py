"""optimizer/adafactor beside torch.optim.Adafactor, from the same weights and tokens, wherever the parameters are cut. Weights after STEPS
steps, role by role (comparison.role_of): to 1e-6 of the role's largest element, but where torch's own weights under 1, 2
and 4 micro-batches spread by more, as where a gradient is nothing but rounding (the keys' bias), to SPREAD_FACTOR times that. What is
compared is the difference that nine of ten elements stay below. A run with another option must be far outside of the bound. That one
update equals torch's to 1e-6 is for tests/unit/optimizer.
"""
import pytest
import reference
import torch
from comparison import largest_error, nine_of_ten, role_of

VOCABULARY = 1009
STEPS = 3
BOUND = 1e-6
SPREAD_FACTOR = 3.0
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


def their_training(folder, tokens, training, micro_batches=1):
    model = reference.open_folder(folder)[0]
    optimizer = torch.optim.Adafactor(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)
    return reference.train_with(optimizer, model, tokens, training, micro_batches)


class Adafactor:
    def __init__(self, runs):
        self.runs, self.training = runs, reference.Training(steps=STEPS, sequence=32, learning_rate=1e-2)
        self.init, self.tokens_file, training = runs.work / "init", runs.work / "tokens.bin", self.training
        reference.make_model(64, 3, 4, VOCABULARY).save_pretrained(self.init)
        reference.make_tokens(self.tokens_file, VOCABULARY, STEPS * training.global_batch * training.sequence + 1)
        tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        self.theirs = their_training(self.init, tokens, training)
        weights = self.theirs.weights
        others = [nine_of_ten(weights, their_training(self.init, tokens, training, count).weights) for count in (2, 4)]
        largest = {}
        for name, value in weights.items():
            role = role_of(name)
            largest[role] = max(largest.get(role, 0.0), value.abs().max().item())
        self.bounds = {role: max(BOUND * value, *(SPREAD_FACTOR * other[role] for other in others)) for role, value in largest.items()}

    def train(self, layout, option=""):
        ranks, settings = LAYOUTS[layout]
        optimizer = f"optimizer={{plugin: adafactor, weight_decay: {self.training.weight_decay}{option}}}"
        rate = f"learning_rate.base={self.training.learning_rate}"
        return self.runs.train(self.init, self.tokens_file, STEPS, ranks, ("model.seq_len=32", optimizer, rate, *settings))

    def distance(self, run):
        """The largest over roles, over the role's bound."""
        weights = reference.weights_of(reference.open_folder(run.export)[0])
        return max((value / self.bounds[role], role) for role, value in nine_of_ten(self.theirs.weights, weights).items())


@pytest.fixture(scope="module")
def adafactor(runs):
    return Adafactor(runs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adafactor(adafactor, layout):
    run = adafactor.train(layout)
    assert largest_error(run.losses, adafactor.theirs.losses) <= 3e-5
    distance, role = adafactor.distance(run)
    print(f"at most {distance:.2g} of the bound, in {role}")
    assert distance <= 1


@pytest.mark.parametrize("option", [", beta2_decay: -0.7", ", d: 1.1", ", eps: [1e-7, 0.1]"])
def test_another_option_is_seen(adafactor, option):
    assert adafactor.distance(adafactor.train("1 rank ddp", option))[0] >= 10
