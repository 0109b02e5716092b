"""Hugging Face folders of every spelling, imported by Strata: two steps from them have the losses of transformers."""
import pytest
import reference
import torch
from comparison import largest_error
from training_layouts import FP32

TRAINING = reference.Training(steps=2, sequence=32)

# name -> arguments of the model, whether config.json has the published keys, weights' type, largest shard
IMPORTS = {
    "rope_parameters, one file": ({}, False, torch.float32, "1GB"),
    "rotary_pct, one file": ({}, True, torch.float32, "1GB"),
    "rope_parameters, shards": ({}, False, torch.float32, "100KB"),
    "rotary_pct, shards, fp16 and old buffers": ({}, True, torch.float16, "100KB"),
    "residual not parallel": ({"use_parallel_residual": False, "layer_norm_eps": 1e-3}, True, torch.float32, "1GB"),
}


def make_import(folder, arguments, published, dtype, shard):
    model = reference.make_model(64, 2, 4, 501, rotary_fraction=0.5, rotary_base=500, **arguments).to(dtype)
    state = model.state_dict()
    if dtype == torch.float16:  # as older versions of transformers saved them, Pythia's own folders among them
        for layer in range(2):
            state[f"gpt_neox.layers.{layer}.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
            state[f"gpt_neox.layers.{layer}.attention.masked_bias"] = torch.tensor(-1e9)
            state[f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"] = torch.ones(4)
    model.save_pretrained(folder, state_dict=state, max_shard_size=shard)
    if published:
        reference.use_published_keys(folder)


class Imports:
    def __init__(self, runs):
        self.runs, self.work, self.tokens_file = runs, runs.work, runs.work / "import.bin"
        reference.make_tokens(self.tokens_file, 501, 5000)
        self.tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")

    def train(self, folder, steps, configuration="3 ranks zero3"):
        ranks, settings = FP32[configuration]
        return self.runs.train(folder, self.tokens_file, steps, ranks, ("model.seq_len=32", *settings))

    def folder(self, name, as_=None):
        folder = self.work / (as_ or name)
        make_import(folder, *IMPORTS[name])
        return folder


@pytest.fixture(scope="module")
def imports(runs):
    return Imports(runs)


@pytest.mark.parametrize("name", IMPORTS)
def test_import(imports, name):
    folder = imports.folder(name)
    shards = len(list(folder.glob("*.safetensors")))
    assert (shards > 1) == ("shards" in name)
    losses = imports.train(folder, TRAINING.steps).losses
    theirs = reference.train(folder, imports.tokens, TRAINING).losses
    assert largest_error(losses[:1], theirs[:1]) <= 1e-6
    assert largest_error(losses, theirs) <= 3e-5


LAST = list(IMPORTS)[-1]


def test_another_rotary_pct_moves_the_first_loss(imports):
    folder = imports.folder(LAST, as_="another rotary_pct")
    theirs = [reference.first_loss(folder, imports.tokens, TRAINING)]
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"rotary_pct": 0.5', '"rotary_pct": 0.25'))
    assert largest_error(imports.train(folder, 1).losses, theirs) >= 1e-4


def test_import_of_an_export(imports):
    export = imports.train(imports.folder(LAST, as_="to be exported"), TRAINING.steps, "2 x 2 zero3 + 1f1b").export
    assert largest_error(imports.train(export, 1).losses, [reference.first_loss(export, imports.tokens, TRAINING)]) <= 1e-6
