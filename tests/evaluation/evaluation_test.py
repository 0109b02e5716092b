"""Validation during training, and `strata eval`.

- The loss of some weights on some samples is at every layout, to LOSS_BOUND, and whatever their number, the one that a training step
  of one process finds on them.
- A training with validation gives the bits of the one without, losses and weights, and holds what its dry run says.
- What the last validation found is what `strata eval` finds of the exported weights.
"""
import filecmp
import json
import math
import os
import tempfile

import pytest
from commands import call, check_refused
from engine import TINY_MODELS, ledger_difference, relative_difference, set_arguments, write_tokens

LOSS_BOUND = 1e-6
SEQUENCE = 16
STEPS = 5
ZERO3 = ["partitioner.plugin=zero3", "train.micro_batch=2"]
PIPELINE = ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]
# name -> ranks, settings
LAYOUTS = {
    "1 rank": (1, ["train.micro_batch=12"]),
    "1 rank, accumulation": (1, ["train.micro_batch=3"]),
    "1 rank zero3": (1, ZERO3),
    "2 ranks zero3": (2, ZERO3),
    "3 ranks zero3": (3, ZERO3),
    "2 ranks round_robin": (2, ["partitioner.plugin=round_robin", "train.micro_batch=3"]),
    "2 stages": (2, PIPELINE),
    "2 x 2, zero3, checkpointing": (4, PIPELINE + ["partitioner.plugin=zero3", "activations.checkpoint=all", "train.micro_batch=3"]),
    "2 ranks zero3, optimizer on cpu": (2, ZERO3 + ["offload.optimizer.plugin=cpu"]),
}
TRAINED = {**{name: LAYOUTS[name] for name in ("1 rank, accumulation", "2 ranks zero3", "2 stages", "2 ranks zero3, optimizer on cpu")},
           "2 ranks zero3, bf16": (2, ZERO3 + ["precision.plugin=bf16"]),
           "2 ranks zero3, schedule_free": (2, ZERO3 + ["optimizer.plugin=schedule_free"]),
           "2 stages, schedule_free, bf16": (2, PIPELINE + ["optimizer.plugin=schedule_free", "precision.plugin=bf16"])}


SAMPLES = {"auto": 29, 1: 1, 13: 13, 12: 12, 1000: 29}  # what is asked for, and what is evaluated


class Evaluation:
    def __init__(self, engine):
        self.engine = engine
        self.tokens = self.file("train.bin", 4000, 5)
        self.held_out = self.file("held_out.bin", 29 * SEQUENCE + 7, 6)  # 29 samples: none of the global batches divides that
        self.config = engine.write_config("run.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": SEQUENCE, **TINY_MODELS["gpt_neox"]}, "data": {"path": self.tokens},
            "train": {"steps": STEPS, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2},
            "communicator": {"timeout_s": 60}})
        self.init = os.path.join(engine.work, "init")
        call([engine.strata, "train", self.config, "--quiet", "--export", self.init, *set_arguments(["train.micro_batch=12", "train.steps=2"])],
             env=engine.environment)
        self.on_samples = {}

    def file(self, name, count, seed):
        path = os.path.join(self.engine.work, name)
        write_tokens(path, count, seed)
        return path

    def evaluate(self, weights, ranks=1, settings=(), source="--init"):
        return self.engine.call("eval", self.config, source, weights, "--data", self.held_out, "--quiet", "--format", "json",
                                *(["--nproc", str(ranks)] if ranks > 1 else []), *set_arguments(settings))

    def trained_on(self, samples):
        """The loss of the first `samples`, as one process finds it in a training step over all of them at once, before its update."""
        if samples not in self.on_samples:
            settings = [f"model.init={self.init}", f"data.path={self.held_out}", "data.order=sequential", "train.steps=1",
                        f"train.global_batch={samples}", f"train.micro_batch={samples}"]
            self.on_samples[samples] = self.engine.train(self.config, 1, settings).losses[0]
        return self.on_samples[samples]

    def train(self, ranks, settings):
        """What the program said, its steps, its summary and the exported folder."""
        folder = tempfile.mkdtemp(prefix="training", dir=self.engine.work)
        outputs = {key: os.path.join(folder, key) for key in ("metrics", "summary", "export")}
        arguments = [self.engine.strata, "train", self.config, "--nproc", str(ranks), *set_arguments(settings)]
        for key, path in outputs.items():
            arguments += ["--" + key, path]
        output = call(arguments, env=self.engine.environment)
        with open(outputs["metrics"]) as file:
            steps = [json.loads(line) for line in file]
        with open(outputs["summary"]) as file:
            return output, steps, json.load(file), outputs["export"]


@pytest.fixture(scope="module")
def evaluation(engine_with_projects):
    return Evaluation(engine_with_projects)


def check_close(value, expected, bound=LOSS_BOUND):
    assert relative_difference([value], [expected]) <= bound, f"{value:.7f} beside {expected:.7f}"


def asked():
    """(what is asked for, layout): some numbers of samples on several ranks only."""
    for samples in SAMPLES:
        for layout, (ranks, _) in LAYOUTS.items():
            if samples in ("auto", 13) or ranks > 1:
                yield pytest.param(samples, layout, marks=pytest.mark.full if samples in (12, 1000) else [])


@pytest.mark.parametrize("samples, layout", asked())
def test_loss_is_that_of_a_training_step(evaluation, samples, layout):
    (ranks, settings), expected = LAYOUTS[layout], SAMPLES[samples]
    result = evaluation.evaluate(evaluation.init, ranks, [*settings, f"validation.samples={samples}"])
    check_close(result["loss"], evaluation.trained_on(expected))
    assert (result["samples"], result["tokens"]) == (expected, expected * SEQUENCE)
    assert abs(result["perplexity"] / math.exp(result["loss"]) - 1) <= 1e-9


@pytest.mark.parametrize("name", TRAINED)
def test_validation_changes_no_bit(evaluation, name):
    ranks, settings = TRAINED[name]
    _, plain, _, plain_export = evaluation.train(ranks, settings)
    validation = [f"validation.path={evaluation.held_out}", "validation.every=2"]
    output, steps, summary, export = evaluation.train(ranks, settings + validation)
    for key in ("loss", "grad_norm"):
        assert [step[key] for step in steps] == [step[key] for step in plain]
    assert filecmp.cmp(*(os.path.join(one, "model.safetensors") for one in (plain_export, export)), shallow=False), "weights differ"
    assert not ledger_difference(summary, evaluation.engine.plan(evaluation.config, ranks, settings + validation))
    found = {step["step"]: step["validation"] for step in steps if "validation" in step}
    assert list(found) == [2, 4, 5]
    best = min(found, key=lambda step: found[step]["loss"])
    assert summary["validation"] == {"last": {**found[5], "step": 5}, "best": {**found[best], "step": best}}
    assert f"validation loss {found[4]['loss']:.4f}, perplexity" in output
    check_close(found[5]["loss"], evaluation.evaluate(export, ranks, settings)["loss"])


@pytest.fixture(scope="module")
def checkpoint(evaluation):
    """A checkpoint saved on two stages, of an optimizer that trains at other weights, and the loss of the weights that the same training
    exported."""
    folder = os.path.join(evaluation.engine.work, "checkpoints")
    ranks, settings = LAYOUTS["2 stages"]
    export = evaluation.train(ranks, [*settings, "optimizer.plugin=schedule_free", f"checkpoint.path={folder}", f"model.init={evaluation.init}"])[3]
    return folder, evaluation.evaluate(export)["loss"]


@pytest.mark.parametrize("layout", ["1 rank", "2 ranks zero3", "2 stages"])
def test_checkpoint(evaluation, checkpoint, layout):
    folder, expected = checkpoint
    ranks, settings = LAYOUTS[layout]
    check_close(evaluation.evaluate(folder, ranks, settings, source="--checkpoint")["loss"], expected)


def test_wrong_checkpoint(evaluation, checkpoint):
    engine, (folder, _) = evaluation.engine, checkpoint
    arguments = ["eval", evaluation.config, "--data", evaluation.held_out, "--checkpoint"]
    check_refused(engine.run(*arguments, folder, "--set", "model.layers=2"), "layers is 2", "was saved with 3")
    shard = next(os.path.join(folder, f"step-{STEPS}", name) for name in os.listdir(os.path.join(folder, f"step-{STEPS}")) if name.endswith(".safetensors"))
    with open(shard, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    check_refused(engine.run(*arguments, folder), os.path.basename(shard))
    check_refused(engine.run(*arguments, "nowhere"), "nowhere")


@pytest.mark.parametrize("words, arguments", [
    (["--init"], ["eval", "CONFIG", "--data", "HELD_OUT"]),
    (["--data", "validation.path"], ["eval", "CONFIG", "--init", "INIT"]),
    (["nowhere"], ["eval", "CONFIG", "--init", "nowhere", "--data", "HELD_OUT"]),
    (["nowhere.bin"], ["eval", "CONFIG", "--init", "INIT", "--data", "nowhere.bin"]),
    (["short.bin"], ["eval", "CONFIG", "--init", "INIT", "--data", "SHORT"]),
    (["validation.every is 3", "validation.path"], ["train", "CONFIG", "--set", "validation.every=3"]),
    (["validation.samples"], ["train", "CONFIG", "--set", "validation.samples=0"]),
    (["short.bin"], ["train", "CONFIG", "--set", "validation.path=SHORT"])],
    ids=["no weights", "no data", "no folder", "no file", "a file without a sample", "every without a path", "no sample asked for",
         "training on a file without a sample"])
def test_refused(evaluation, words, arguments):
    known = {"CONFIG": evaluation.config, "HELD_OUT": evaluation.held_out, "INIT": evaluation.init, "SHORT": evaluation.file("short.bin", SEQUENCE, 7)}
    arguments = [known.get(word, word.replace("SHORT", known["SHORT"])) for word in arguments]
    check_refused(evaluation.engine.run(*arguments), *words)
