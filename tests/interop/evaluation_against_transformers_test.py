"""`strata eval` beside transformers: the mean loss of the same Hugging Face folder over the same tokens, of random weights and of weights
that Strata trained and exported. Every layout to 1e-5 of transformers', and to 1e-6 of one rank's."""
import math

import pytest
import reference
import torch
from comparison import largest_error

SEQUENCE = 64
SAMPLES = 17  # which neither the ranks nor the micro-batches divide
VOCABULARY = 1009
LAYOUTS = {
    "1 rank": (1, ("train.micro_batch=4",)),
    "2 ranks zero3": (2, ("partitioner.plugin=zero3", "train.micro_batch=3")),
    "3 ranks ddp": (3, ("partitioner.plugin=ddp", "train.micro_batch=4")),
    "2 stages 1f1b": (2, ("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=3")),
}


def their_loss(folder, tokens):
    model = reference.open_folder(folder)[0]
    with torch.no_grad():
        return reference.mean_loss(model, *reference.batch(tokens, SEQUENCE, 0, SAMPLES)).item()


class Folders:
    """Random weights, and what was trained from them; tokens, and transformers' losses."""

    def __init__(self, runs):
        self.runs, self.size = runs, f"model.seq_len={SEQUENCE}"
        init, self.tokens_file = runs.work / "init", runs.work / "tokens.bin"
        reference.make_model(64, 3, 4, VOCABULARY).save_pretrained(init)
        reference.make_tokens(self.tokens_file, VOCABULARY, SAMPLES * SEQUENCE + 9)
        tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        trained = runs.train(init, self.tokens_file, 4, 2, (self.size, *LAYOUTS["2 ranks zero3"][1])).export
        self.folders = {"random weights": init, "an export": trained}
        self.truth = {name: their_loss(folder, tokens) for name, folder in self.folders.items()}

    def evaluate(self, name, layout):
        ranks, settings = LAYOUTS[layout]
        return self.runs.evaluate(self.folders[name], self.tokens_file, ranks, (self.size, *settings))


@pytest.fixture(scope="module")
def folders(runs):
    return Folders(runs)


@pytest.fixture(scope="module")
def first(folders):
    """One rank's losses."""
    return {name: folders.evaluate(name, "1 rank")["loss"] for name in folders.folders}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["random weights", "an export"])
def test_loss(folders, first, name, layout):
    found, truth = folders.evaluate(name, layout), folders.truth[name]
    assert (found["samples"], found["tokens"]) == (SAMPLES, SAMPLES * SEQUENCE)
    assert largest_error([found["loss"]], [truth]) <= 1e-5
    assert largest_error([found["perplexity"]], [math.exp(truth)]) <= 1e-4
    assert largest_error([found["loss"]], [first[name]]) <= 1e-6


def test_training_moved_the_loss(folders):
    assert folders.truth["random weights"] - folders.truth["an export"] >= 0.01
