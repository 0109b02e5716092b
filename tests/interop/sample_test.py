"""`strata sample` without chance beside transformers' generate from the same export: token for token, whatever shares the model.

Weights are random and wide, and were trained for a step. Where two tokens were nearly as likely, rounding could decide: the smallest
distance between the two largest logits is looked at first.
"""
import pathlib
import shutil

import pytest
import reference
import torch
from families_test import FAMILIES, Families

TOKENS, PROMPT = 100, 20
# Logits of both differ by less, see test_losses and evaluation_against_transformers_test.py: 1e-6 of logits of about 10.
APART = 1e-4
LAYOUTS = {
    "1 rank": (1, ()),
    "2 ranks zero3": (2, ("partitioner.plugin=zero3",)),
    "tensor 2 x pipeline 2, sequence": (4, ("parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2", "scheduler.plugin=1f1b")),
}


def generated(folder, prompt):
    """transformers' text, and the smallest distance between the two largest logits."""
    model, wrong = reference.open_folder(folder)
    assert not wrong
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        text = torch.tensor([prompt])
        made = model.generate(text, attention_mask=torch.ones_like(text), do_sample=False, max_new_tokens=TOKENS, pad_token_id=0, output_logits=True,
                              return_dict_in_generate=True)
    largest = torch.cat(made.logits).topk(2).values
    return made.sequences[0, len(prompt):].tolist(), (largest[:, 0] - largest[:, 1]).min().item()


def lively(folder):
    """GPT-2's head is its embedding, so that random weights repeat the last token; wide embeddings of positions take them away from it."""
    model, _ = reference.open_folder(folder)
    for name, parameter in model.named_parameters():
        if name.endswith("wpe.weight"):
            parameter.data.mul_(5)
    model.save_pretrained(folder)
    return folder


class Exports:
    def __init__(self, runs):
        self.families, self.known = Families(runs), {}

    def of(self, family):
        """An export, a prompt and transformers' text."""
        if family not in self.known:
            export = self.families.train(family, "1 rank", lively(self.families.init(family)), steps=1).export
            prompt = [int(token) for token in self.families.tokens[:PROMPT]]
            text, apart = generated(export, prompt)
            assert len(text) == TOKENS and len(set(text)) >= 20, f"the text says little: {text}"
            assert apart > APART, "rounding decides between two tokens; take other weights"
            self.known[family] = export, prompt, text
        return self.known[family]


@pytest.fixture(scope="module")
def exports(runs):
    return Exports(runs)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "llama"])
def test_text_without_chance(exports, runs, family, layout):
    export, prompt, text = exports.of(family)
    ranks, settings = LAYOUTS[layout]
    made = runs.sample(export, prompt, TOKENS, ranks, (f"model.plugin={FAMILIES[family][0]}", *settings))
    assert made["tokens"] == text
