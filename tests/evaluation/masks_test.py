"""Tokens that the data's mask leaves out of the loss: `data.nanogpt.mask`.

- Losses and norms are those of one process at every layout, whatever the number of targets in each micro-batch.
- The loss over all tokens is the mean of the losses over a mask and over its complement, weighted by their targets.
- A mask of ones changes no bit. Two ranks with different masks, and a resume with another one, are refused.
"""
import array
import os
import random

import pytest
from commands import call, check_refused
from engine import TINY_MODELS, relative_difference, set_arguments

BOUND = 2e-6  # relative, as in documents_test.py; one target counted too many in a step changes 1 / 192 or more
SEQUENCE, TOKENS, STEPS = 16, 2000, 4
LAYOUTS = {  # ranks, settings
    "1 rank, single samples": (1, ["train.micro_batch=1"]),
    "2 ranks": (2, ["train.micro_batch=6"]),
    "3 ranks zero3, accumulation": (3, ["partitioner.plugin=zero3", "train.micro_batch=2"]),
    "2 stages": (2, ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]),
    "2 tensor ranks": (2, ["parallel.tensor=2", "train.micro_batch=12"]),
}


def turns(seed):
    """Ones for answers, zeros for prompts; some samples have no target at all."""
    draw, mask = random.Random(seed), []
    while len(mask) < TOKENS:
        mask += [0] * draw.randrange(1, 3 * SEQUENCE) + [1] * draw.randrange(1, SEQUENCE)
    return mask[:TOKENS]


class Masks:
    def __init__(self, engine):
        self.engine = engine
        draw = random.Random(11)
        self.tokens = f"{engine.work}/masked.bin"
        with open(self.tokens, "wb") as file:
            array.array("H", [draw.randrange(257) for _ in range(TOKENS)]).tofile(file)
        self.config = engine.write_config("masked.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": SEQUENCE, **TINY_MODELS["gpt_neox"]},
            "data": {"path": self.tokens, "order": "shuffled"}, "communicator": {"timeout_s": 60},
            "train": {"steps": STEPS, "global_batch": 12, "seed": 3, "clip": 0.5}, "learning_rate": {"base": 1e-2}})

    def mask(self, values, name="mask"):
        path = f"{self.engine.work}/{name}.u8"
        with open(path, "wb") as file:
            file.write(bytes(values))
        return f"data.nanogpt.mask={path}"

    def train(self, ranks, settings):
        result = self.engine.train(self.config, ranks, settings, with_gradients=True)
        assert result.status == 0, result.output
        return result.losses, [step["grad_norm"] for step in result.steps]

    def run(self, settings, *more):
        return self.engine.run("train", self.config, "--quiet", *set_arguments(["train.micro_batch=12", *settings]), *more)


@pytest.fixture(scope="module")
def masks(engine):
    return Masks(engine)


@pytest.fixture(scope="module")
def one_process(masks):
    return masks.train(1, ["train.micro_batch=12", masks.mask(turns(1), "one")])


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(masks, one_process, name):
    ranks, settings = LAYOUTS[name]
    losses, norms = masks.train(ranks, [*settings, masks.mask(turns(1), "one")])
    assert relative_difference(losses, one_process[0]) <= BOUND
    assert relative_difference(norms, one_process[1]) <= BOUND


def test_ones_change_no_bit(masks):
    plain, ones = (masks.train(2, ["train.micro_batch=3", *mask]) for mask in ([], [masks.mask([1] * TOKENS, "ones")]))
    assert plain == ones


def test_a_mask_and_its_complement(masks):
    engine, mask = masks.engine, turns(2)
    weights = f"{engine.work}/masked_init"
    call([engine.strata, "train", masks.config, "--quiet", "--export", weights, *set_arguments(["train.steps=1"])], env=engine.environment)

    def evaluate(*mask, ranks=1, documents=()):
        settings = [f"validation.path={masks.tokens}", *(one.replace("data.", "validation.") for one in mask), *documents]
        arguments = ["--init", weights, "--quiet", "--format", "json", *(["--nproc", str(ranks)] if ranks > 1 else [])]
        return engine.call("eval", masks.config, *arguments, *set_arguments(settings))

    whole, some, rest = evaluate(), evaluate(masks.mask(mask, "some")), evaluate(masks.mask([1 - one for one in mask], "rest"))
    used = (TOKENS - 1) // SEQUENCE * SEQUENCE
    assert some["tokens"] == sum(mask[1:used + 1]) and some["tokens"] + rest["tokens"] == whole["tokens"] == used
    assert abs(some["loss"] / rest["loss"] - 1) > 1e-4, "the two halves have one loss, so that this test sees nothing"
    mean = (some["loss"] * some["tokens"] + rest["loss"] * rest["tokens"]) / used
    assert relative_difference([mean], [whole["loss"]]) <= BOUND
    several = evaluate(masks.mask(mask, "some"), ranks=3)
    assert several["tokens"] == some["tokens"] and relative_difference([several["loss"]], [some["loss"]]) <= BOUND


def test_validation_takes_no_mask_of_the_training_data(masks):
    engine, other = masks.engine, f"{masks.engine.work}/validated.bin"
    with open(other, "wb") as file:
        array.array("H", [7] * 500).tofile(file)
    settings = [masks.mask(turns(4), "of_data"), f"validation.path={other}", "train.steps=1"]
    values = engine.call("config", "show", masks.config, "--format", "json", *set_arguments(settings))
    assert not [row["value"] for row in values if row["key"] == "validation.nanogpt.mask" and row["value"]]
    call([engine.strata, "train", masks.config, "--quiet", *set_arguments(settings)], env=engine.environment)


def test_a_step_without_a_target(masks):
    none = masks.mask([0] * TOKENS, "none")
    check_refused(masks.run([none]), "every target of this step", "documents: separate")
    check_refused(masks.run([none, "data.documents=separate", "data.document_end=1"]), "no document has a target")


def test_a_resume_keeps_the_mask(masks):
    engine = masks.engine
    folder, mask = f"{engine.work}/masked_checkpoints", turns(3)
    saved = ["train.steps=2", f"checkpoint.path={folder}"]
    call([engine.strata, "train", masks.config, "--quiet", *set_arguments([*saved, masks.mask(mask, "kept")])], env=engine.environment)
    mask[TOKENS // 2] ^= 1
    check_refused(masks.run([*saved, masks.mask(mask, "changed")], "--resume"), "data")
    check_refused(masks.run(saved, "--resume"), "data")


@pytest.mark.parametrize("values, words", [
    ([1] * (TOKENS - 1), [f"has {TOKENS - 1} numbers", f"{TOKENS} tokens", "one byte for each token"]),
    ([1] * 5 + [2] + [1] * (TOKENS - 6), ["byte 5 is 2", "1 for a target and 0"]),
    (list(b"1" * TOKENS), ["byte 0 is 49"]),
    ([], ["is empty"]),
], ids=["too short", "another number", "text", "empty"])
def test_invalid_masks(masks, values, words):
    check_refused(masks.run([masks.mask(values, "wrong")]), "wrong.u8", *words)


def test_a_mask_for_each_file(masks):
    folder = f"{masks.engine.work}/parts"
    os.mkdir(folder)
    with open(masks.tokens, "rb") as file:
        whole, mask = file.read(), bytes(turns(1))
    for number, (begin, end) in enumerate([(0, 700), (700, 701), (701, TOKENS)]):
        with open(f"{folder}/part_{number}.bin", "wb") as file:
            file.write(whole[2 * begin:2 * end])
        with open(f"{folder}/part_{number}.u8", "wb") as file:
            file.write(mask[begin:end])
    parts = [f"data.path={folder}/part_*.bin", "data.nanogpt.token_type=u16", f"data.nanogpt.mask={folder}/part_*.u8"]
    assert masks.train(1, ["train.micro_batch=12", *parts]) == masks.train(1, ["train.micro_batch=12", masks.mask(turns(1), "one")])
    os.unlink(f"{folder}/part_1.u8")
    check_refused(masks.run(parts), "is one of 2 files of a mask", "3", "each file has its own")
