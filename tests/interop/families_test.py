"""Each family of models beside transformers, from the same random weights: the losses of training, on one rank and with layers shared by
the ranks of a tensor group; and the folders that go in and out.

The sizes divide badly: three layers, an odd vocabulary (training_test.py has a real one), sequences of 65 tokens, 6 heads of which llama's share 2 of keys and values.
"""
import json
import pathlib
import shutil

import pytest
import reference
import torch
import transformers
from comparison import largest_error

TRAINING = reference.Training(steps=20, sequence=65, global_batch=4)
VOCABULARY = 5003
TENSOR, SEQUENCE = ("parallel.tensor=2",), ("parallel.tensor=2", "parallel.sequence=true")
ZERO3 = ("partitioner.plugin=zero3",)

# name -> ranks, settings
LAYOUTS = {
    "1 rank": (1, ("train.micro_batch=2",)),
    "tensor 2": (2, ("train.micro_batch=2", *TENSOR)),
    "tensor 2, sequence": (2, ("train.micro_batch=1", *SEQUENCE)),
    "tensor 2 x data 2, zero3, sequence, recomputed": (4, ("train.micro_batch=1", "activations.checkpoint=all", *SEQUENCE, *ZERO3)),
    "tensor 2 x pipeline 2, sequence": (4, ("train.micro_batch=1", "parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", *SEQUENCE)),
}


def llama(kind="Llama", **arguments):
    config = getattr(transformers, kind + "Config")(
        hidden_size=96, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, intermediate_size=250, vocab_size=VOCABULARY,
        max_position_embeddings=256, initializer_range=0.1, attention_dropout=0.0, bos_token_id=0, eos_token_id=0, **arguments)
    return getattr(transformers, kind + "ForCausalLM")(config)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=96, n_layer=3, n_head=6, vocab_size=VOCABULARY, n_positions=128, initializer_range=0.1, embd_pdrop=0.0, attn_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0))


LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
# name -> the model plugin, the model
FAMILIES = {
    "gpt_neox": ("gpt_neox", lambda: reference.make_model(96, 3, 6, VOCABULARY)),
    "gpt2": ("gpt2", gpt2),
    "llama": ("llama", lambda: llama(rope_parameters=LLAMA3_ROPE)),
    "llama 2": ("llama", lambda: llama(rms_norm_eps=1e-6)),
    "qwen2": ("llama", lambda: llama("Qwen2", tie_word_embeddings=True)),
    "mistral": ("llama", lambda: llama("Mistral", sliding_window=None)),
}
# The others differ from these by what the layouts do not touch. With --full every family is trained on every layout.
QUICK = {*((family, "1 rank") for family in FAMILIES), ("llama", "tensor 2"), ("gpt_neox", "tensor 2, sequence"),
         ("gpt2", "tensor 2 x pipeline 2, sequence"), ("llama", "tensor 2 x data 2, zero3, sequence, recomputed")}
CASES = [pytest.param(family, layout, marks=[] if (family, layout) in QUICK else pytest.mark.full) for family in FAMILIES for layout in LAYOUTS]


class Families:
    def __init__(self, runs):
        self.runs, self.work = runs, runs.work
        self.tokens_file = self.work / "tokens.bin"
        reference.make_tokens(self.tokens_file, VOCABULARY, TRAINING.steps * TRAINING.global_batch * TRAINING.sequence + 1)
        self.tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        self.known = {}

    def init(self, family):
        """The folder of random weights."""
        folder = self.work / family.replace(" ", "")
        if not folder.exists():
            torch.manual_seed(3)
            model = FAMILIES[family][1]()
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.data.add_(0.02 * torch.randn_like(parameter))
            model.save_pretrained(folder)
        return folder

    def of(self, family):
        """The folder, and transformers' losses from it."""
        if family not in self.known:
            self.known[family] = self.init(family), reference.train(self.init(family), self.tokens, TRAINING, 2)
        return self.known[family]

    def train(self, family, layout, init, steps=TRAINING.steps):
        ranks, settings = LAYOUTS[layout]
        settings = (f"model.plugin={FAMILIES[family][0]}", f"model.seq_len={TRAINING.sequence}", f"train.global_batch={TRAINING.global_batch}",
                    *settings)
        return self.runs.train(init, self.tokens_file, steps, ranks, settings)


@pytest.fixture(scope="module")
def families(runs):
    return Families(runs)


@pytest.mark.parametrize("family, layout", CASES)
def test_losses(families, family, layout):
    init, theirs = families.of(family)
    ours = families.train(family, layout, init)
    assert largest_error(ours.losses[:1], theirs.losses[:1]) <= 1e-6
    assert largest_error(ours.norms[:1], theirs.norms[:1]) <= 1e-5
    assert largest_error(ours.losses, theirs.losses) <= 1e-5
    model, wrong = reference.open_folder(ours.export)
    assert not wrong, "transformers finds keys missing or left over in the export"
    assert type(model) is type(FAMILIES[family][1]())
    shutil.rmtree(ours.export)


# What a family's config may get wrong without a crash -> the changed key, and by how much.
MISREAD = {"gpt_neox": {"layer_norm_eps": lambda eps: eps * 10, "rope_parameters": lambda rope: rope | {"rope_theta": rope["rope_theta"] * 1.1},
                        "hidden_act": lambda _: "gelu_new"},
           "gpt2": {"layer_norm_epsilon": lambda eps: eps * 10, "activation_function": lambda _: "gelu"},
           "llama": {"rms_norm_eps": lambda eps: eps * 10, "rope_parameters": lambda rope: rope | {"rope_theta": rope["rope_theta"] * 1.1}},
           "llama 2": {"rms_norm_eps": lambda eps: eps * 10}}


@pytest.mark.parametrize("family, key", [(family, key) for family, keys in MISREAD.items() for key in keys])
def test_bounds_see_a_misread_key(families, family, key):
    """A model that has the key's value wrong is further from transformers' than the bound of test_losses."""
    init, theirs = families.of(family)
    wrong = families.work / f"{family.replace(' ', '')}-{key}"
    shutil.copytree(init, wrong, dirs_exist_ok=True)
    config = json.loads((wrong / "config.json").read_text())
    config[key] = MISREAD[family][key](config[key])
    (wrong / "config.json").write_text(json.dumps(config))
    assert largest_error([reference.first_loss(wrong, families.tokens, TRAINING)], theirs.losses[:1]) > 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_comes_out_as_it_went_in(families, family):
    """A rate of 0 changes nothing: every tensor has the bits that it had, under its name, whatever shared the layers."""
    init, _ = families.of(family)
    ranks, settings = LAYOUTS["tensor 2, sequence"]
    still = ("learning_rate.base=0", f"model.plugin={FAMILIES[family][0]}", f"model.seq_len={TRAINING.sequence}", "train.global_batch=4", *settings)
    export = families.runs.train(init, families.tokens_file, 1, ranks, still).export
    before, after = ({name: value for file in sorted(pathlib.Path(folder).glob("*.safetensors")) for name, value in load(file).items()}
                     for folder in (init, export))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    first = reference.first_loss(export, families.tokens, TRAINING)
    few = families.work / "few.bin"
    families.tokens[:TRAINING.global_batch * TRAINING.sequence + 1].tofile(few)
    evaluated = families.runs.evaluate(export, few, 2, (*still[1:], "train.micro_batch=2"))
    assert largest_error([evaluated["loss"]], [first]) <= 1e-6


def load(file):
    from safetensors.torch import load_file
    return load_file(file)
