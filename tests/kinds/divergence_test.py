"""A run that diverges destroys nothing, and weights with NaN are named by every command that reads them.

The whole product of steps, periods and numbers of checkpoints is walked in one process by tests/unit/checkpoint/divergence_test.cpp.
"""
import itertools
import json
import pathlib
import random
import struct

import pytest
from commands import check_refused, run, told
from engine import TINY_MODELS, set_arguments, write_tokens

GOOD, AFTER = 6, 8  # steps before the learning rate that poisons the weights, and after it
# checkpoint.every, checkpoint.keep, steps before the poisoned one
CASES = list(itertools.product((1, 2, 3), (1, 2, 3), range(3, 7)))
random.Random(random.SystemRandom().random()).shuffle(CASES)


class Diverging:
    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens)
        self.config = engine.write_config("diverging.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 16, **TINY_MODELS["gpt_neox"]}, "data": {"path": self.tokens},
            "train": {"steps": GOOD, "global_batch": 4, "seed": 3}, "learning_rate": {"base": 1e-3},
            "precision": {"plugin": "fp32", "max_consecutive_skips": 4}})

    def strata(self, *words):
        return run([self.engine.strata, *words], env=self.engine.environment)

    def train(self, checkpoints, *words, settings=()):
        return self.strata("train", self.config, "--quiet", *words, *set_arguments([f"checkpoint.path={checkpoints}", *settings]))

    def info(self, path):
        done = self.strata("checkpoint", "info", path, "--format", "json")
        assert done.returncode == 0, told(done)
        return json.loads(done.stdout)

    def loss(self, checkpoint):
        done = self.strata("eval", self.config, "--checkpoint", checkpoint, "--data", self.tokens, "--quiet", "--format", "json",
                           *set_arguments(["validation.samples=8"]))
        return json.loads(done.stdout)["loss"] if done.returncode == 0 else None


@pytest.fixture(scope="module")
def diverging(engine, folder):
    return Diverging(engine, folder)


@pytest.fixture(scope="module")
def poisoned(diverging):
    """A Hugging Face folder whose weights hold one NaN, and a checkpoint with as many as training makes."""
    diverging.train(diverging.folder / "good", "--export", diverging.folder / "weights", settings=["train.steps=1"])
    path = diverging.folder / "weights/model.safetensors"
    content = bytearray(path.read_bytes())
    length = struct.unpack("<Q", content[:8])[0]
    name, entry = next((name, entry) for name, entry in json.loads(content[8:8 + length]).items() if "mlp" in name)
    begin = 8 + length + entry["data_offsets"][0]
    content[begin:begin + 4] = struct.pack("<f", float("nan"))
    path.write_bytes(content)
    checkpoints = diverging.folder / "bad"
    diverging.train(checkpoints, settings=["learning_rate.base=1e38", "train.steps=3"])
    newest = max(checkpoints.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    return name, path.parent, newest


@pytest.mark.parametrize("every, keep, poison", [pytest.param(*case, marks=[] if number < 1 else pytest.mark.full)
                                                 for number, case in enumerate(CASES)])
def test_a_checkpoint_with_a_finite_loss_is_left(diverging, tmp_path, every, keep, poison):
    """One at least that `eval` gives a finite loss of; it is what `latest`, `checkpoint info` and --resume take."""
    settings = [f"checkpoint.every={every}", f"checkpoint.keep={keep}"]
    done = diverging.train(tmp_path, settings=[*settings, f"train.steps={poison}"])
    assert done.returncode == 0, told(done)
    done = diverging.train(tmp_path, "--resume", settings=[*settings, f"train.steps={poison + AFTER}", "learning_rate.base=1e38"])
    assert done.returncode == 3 and "has diverged" in done.stderr, told(done)
    steps = [path for path in tmp_path.glob("step-*") if diverging.loss(path) is not None]
    assert steps, f"of {sorted(path.name for path in tmp_path.iterdir())} none gives a finite loss"
    latest = diverging.info(tmp_path)
    assert latest["finite"] and pathlib.Path(latest["path"]) in steps, latest
    assert diverging.loss(tmp_path / "latest") is not None
    done = diverging.train(tmp_path, "--resume", settings=[*settings, f"train.steps={latest['step'] + 1}"])
    assert done.returncode == 0, told(done)


# What a command does with weights -> its words.
READERS = {
    "checkpoint export": lambda it, weights, checkpoint: ["checkpoint", "export", checkpoint, it.folder / "refused"],
    "eval --checkpoint": lambda it, weights, checkpoint: ["eval", it.config, "--quiet", "--checkpoint", checkpoint, "--data", it.tokens],
    "sample --checkpoint": lambda it, weights, checkpoint: ["sample", it.config, "--checkpoint", checkpoint, "--prompt-tokens", "1,2", "--tokens", "2"],
    "eval --init": lambda it, weights, checkpoint: ["eval", it.config, "--quiet", "--init", weights, "--data", it.tokens],
    "train model.init": lambda it, weights, checkpoint: ["train", it.config, "--quiet", "--set", f"model.init={weights}"],
    "train --export": lambda it, weights, checkpoint: ["train", it.config, "--quiet", "--export", it.folder / "refused", "--set", "learning_rate.base=1e38",
                                                        "--set", "train.steps=3"],
}


@pytest.mark.parametrize("reader", READERS)
def test_weights_that_are_not_finite_are_refused_by_name(diverging, poisoned, reader):
    name, weights, checkpoint = poisoned
    done = diverging.strata(*READERS[reader](diverging, weights, checkpoint))
    lines = [line for line in done.stderr.splitlines() if "holds NaN or infinity" in line]
    assert done.returncode == 2 and len(lines) == 1, told(done)
    assert not (diverging.folder / "refused").exists()
    if "init" in reader:
        assert name in lines[0] or name.replace("gpt_neox", "gpt") in lines[0], told(done)


def test_a_checkpoint_names_values_that_are_not_finite(diverging, poisoned):
    info = diverging.info(poisoned[2])
    assert not info["finite"] and info["not_finite"], info
    shown = diverging.strata("checkpoint", "info", poisoned[2])
    assert "not finite" in shown.stdout, told(shown)


def test_resuming_without_a_finite_checkpoint_is_refused(diverging, poisoned):
    folder = poisoned[2].parent
    check_refused(diverging.train(folder, "--resume", settings=["train.steps=9"]), "is not finite", f"--resume {folder}")


def test_a_run_that_never_made_a_step_names_the_weights_it_began_with(diverging, tmp_path):
    """Huge and finite weights: the first loss is not finite."""
    done = diverging.train(tmp_path, settings=["model.initializer_range=1e30", "train.steps=9"])
    assert done.returncode == 3 and "check the initial weights" in done.stderr, told(done)


def test_a_first_step_that_computes_nothing(diverging, tmp_path):
    """A vocabulary of one token: the loss and all gradients are exactly 0."""
    (tmp_path / "zeros.bin").write_bytes(bytes(4000))
    done = diverging.train(tmp_path / "saved", settings=["model.vocabulary=1", f"data.path={tmp_path / 'zeros.bin'}", "train.steps=2"])
    assert done.returncode == 3 and "are exactly 0" in done.stderr, told(done)
