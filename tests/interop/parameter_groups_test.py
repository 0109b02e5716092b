"""The config's `parameters:` rules beside torch.optim.AdamW's parameter groups, from the same weights and tokens: one parameter frozen,
some with a learning rate and some with a weight decay of their own. Losses to 3e-5 as everywhere; weights, role by role, to SPREAD_FACTOR
times the spread of torch's own weights under 1, 2 and 4 micro-batches, measured here, and to a few roundings where that is less. What is
compared is the difference that nine of ten elements stay below: where a gradient is nothing but rounding, Adam makes a whole step of it,
and one such element is luck, while a wrong rule moves all. A run without the rules must be far outside the bound.
"""
import fnmatch

import pytest
import reference
import torch
from comparison import largest_error, nine_of_ten

VOCABULARY = 1009
SPREAD_FACTOR = 3.0
ROUNDING = 2.0**-22  # of the largest element
# pattern -> what torch's group says, in the order of the rules; the later wins
RULES = [
    ("*.bias", {"weight_decay": 0.0}),
    ("*layernorm*", {"weight_decay": 0.0, "factor": 0.5}),
    ("gpt_neox.layers.0.*", {"factor": 0.25}),
    ("gpt_neox.embed_in.*", {"trainable": False}),
    ("*.attention.dense.weight", {"weight_decay": 0.5}),
]
RULES_TEXT = ("[{match: '*.bias', weight_decay: 0}, {match: '*layernorm*', weight_decay: 0, learning_rate_factor: 0.5}, "
              "{match: gpt_neox.layers.0.*, learning_rate: 2.5e-4}, {match: gpt_neox.embed_in.*, trainable: false}, "
              "{match: '*.attention.dense.weight', weight_decay: 0.5}]")
LAYOUTS = {
    "1 rank": (1, ("train.micro_batch=12",)),
    "2 ranks zero3": (2, ("partitioner.plugin=zero3", "train.micro_batch=3")),
    "2 stages 1f1b": (2, ("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=3")),
    "2 ranks zero3, optimizer on cpu": (2, ("partitioner.plugin=zero3", "train.micro_batch=3", "offload.optimizer.plugin=cpu")),
}


def their_training(folder, tokens, training, micro_batches=1):
    model = reference.open_folder(folder)[0]
    groups = []
    for name, parameter in model.named_parameters():
        group = {"params": [parameter], "lr": training.learning_rate, "weight_decay": training.weight_decay}
        for pattern, says in RULES:
            if not fnmatch.fnmatchcase(name, pattern):
                continue
            if "trainable" in says:
                parameter.requires_grad_(says["trainable"])
            if "weight_decay" in says:
                group["weight_decay"] = says["weight_decay"]
            if "factor" in says:
                group["lr"] = training.learning_rate * says["factor"]
        if parameter.requires_grad:
            groups.append(group)
    optimizer = torch.optim.AdamW(groups, betas=training.betas, eps=training.epsilon)
    return reference.train_with(optimizer, model, tokens, training, micro_batches)


class Rules:
    """torch's training under the rules, and how far its own spreads."""

    def __init__(self, runs):
        self.runs, self.training = runs, reference.Training(steps=8, sequence=32)
        self.init, self.tokens_file, training = runs.work / "init", runs.work / "tokens.bin", self.training
        reference.make_model(64, 3, 4, VOCABULARY).save_pretrained(self.init)
        reference.make_tokens(self.tokens_file, VOCABULARY, training.steps * training.global_batch * training.sequence + 1)
        tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        self.initial = reference.weights_of(reference.open_folder(self.init)[0])
        self.theirs = their_training(self.init, tokens, training)
        others = [nine_of_ten(self.theirs.weights, their_training(self.init, tokens, training, count).weights) for count in (2, 4)]
        largest = nine_of_ten(self.theirs.weights, {name: torch.zeros_like(value) for name, value in self.theirs.weights.items()})
        self.spread = {role: max(*(other[role] for other in others), ROUNDING * largest[role] / SPREAD_FACTOR) for role in largest}

    def train(self, layout, *rules):
        ranks, settings = LAYOUTS[layout]
        run = self.runs.train(self.init, self.tokens_file, self.training.steps, ranks, ("model.seq_len=32", *settings, *rules))
        return run, reference.weights_of(reference.open_folder(run.export)[0])

    def distance(self, weights):
        """The largest over roles, in spreads; what torch did not move is for the check of frozen bits."""
        return max(value / self.spread[role] for role, value in nine_of_ten(self.theirs.weights, weights).items() if self.spread[role] > 0)


@pytest.fixture(scope="module")
def rules(runs):
    return Rules(runs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rules(rules, layout):
    run, weights = rules.train(layout, f"parameters={RULES_TEXT}")
    assert largest_error(run.losses, rules.theirs.losses) <= 3e-5
    assert largest_error(run.norms, rules.theirs.norms) <= 1e-5, "norms over what is trained"
    assert rules.distance(weights) <= SPREAD_FACTOR
    assert torch.equal(weights["gpt_neox.embed_in.weight"], rules.initial["gpt_neox.embed_in.weight"]), "the frozen parameter moved"


@pytest.mark.parametrize("settings", [(), (f"parameters={RULES_TEXT.rsplit(', {', 1)[0]}]",)], ids=["without rules", "without the last rule"])
def test_other_rules_are_seen(rules, settings):
    assert rules.distance(rules.train("1 rank", *settings)[1]) >= 10 * SPREAD_FACTOR
