"""Checkpoints that are damaged, of another run or of another layout: passed over, refused, or gone on from."""
import json
import os
import pathlib
import random
import subprocess

import pytest
from engine import TINY_MODELS, set_arguments
from layouts import DDP, FEW, LAYOUTS, few_of
from runs import Run, failing


@pytest.mark.parametrize("layout", few_of(FEW, 1))
def test_damaged(faults, layout, seed):
    """The latest with one bit altered, cut, or half there: passed over, or refused when it is named."""
    folder = faults.folder()
    faults.expect(faults.start(layout, folder, ["checkpoint.every=5", "checkpoint.keep=0"], slow=False), 0)
    ranks, draw = LAYOUTS[layout][0], random.Random(seed)
    damages = [(f"shard-{ranks - 1}-of-{ranks}.safetensors", lambda path: flip(path, draw)), ("plugins.safetensors", os.remove), ("checkpoint.json", cut)]
    for step, (name, damage) in zip((20, 15, 10), damages, strict=True):
        damage(os.path.join(folder, f"step-{step}", name))
        path = os.path.join(folder, f"step-{step}")
        named = faults.expect(faults.start(layout, faults.folder(), resume=path, slow=False), 2, name)
        lines = [line for line in named.output.splitlines() if not line.startswith(("[rank 1]", "strata: rank "))]
        assert ranks > 1 or len(lines) <= 2, named.output
        status, said = faults.machine.call("checkpoint", "info", path)
        assert status == 2 and name in said, f"`checkpoint info` does not refuse it: {said}"
    weights = os.path.join(faults.machine.new_folder(), "weights")
    run = faults.expect(faults.start(layout, folder, resume="latest", export=weights, slow=False), 0, "step-20", "resuming from",
                        "step-5, the one before it")
    faults.compare(layout, run, weights)


@pytest.mark.parametrize("layout", ["ddp, 1 rank", "zero3, 2 ranks"])
@pytest.mark.parametrize("after", [0, 3])
def test_failing_disk(faults, layout, after):
    """EIO in the middle of a checkpoint, or of an export: told on a run of any size, and nothing that looks whole is left."""
    folder, weights = faults.folder(), os.path.join(faults.machine.new_folder(), "weights")
    with failing(faults.machine, folder, after):
        faults.expect(faults.start(layout, folder, ["checkpoint.every=5"], slow=False), 3, "Input/output error", folder)
    assert not os.path.lexists(os.path.join(folder, "latest"))
    with failing(faults.machine, weights, after):
        faults.expect(faults.start(layout, faults.folder(), export=weights, slow=False), 3, "Input/output error", weights)
    assert not os.path.exists(weights) or not os.listdir(weights)


def flip(path, draw):
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.seek(0)
        file.write(content)


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


@pytest.fixture(scope="module")
def four_steps(faults):
    """The folder of a run of four steps."""
    folder = faults.folder()
    faults.expect(faults.start("ddp, 1 rank", folder, ["train.steps=4"], slow=False), 0)
    return folder


@pytest.mark.parametrize("setting, text", [
    ("train.seed=4", "train.seed = 3, and this run has 4"), ("train.global_batch=16", "train.global_batch = 8"),
    ("data.order=sequential", "data.order = shuffled"), ("model.hidden_size=64", "model.gpt_neox.hidden_size = 40, and this run has 64"),
    ("model.layers=2", "model.gpt_neox.layers = 3, and this run has 2"), ("optimizer.plugin=sgd", "holds exp_avg, exp_avg_sq, master of"),
    ("train.steps=3", "has 4 steps, and train.steps is 3")])
def test_another_run_is_refused(faults, four_steps, setting, text):
    latest = os.path.join(four_steps, "latest")
    run = faults.expect(faults.start("ddp, 1 rank", faults.folder(), [setting], resume=latest, slow=False), 2, text)
    assert len(run.output.splitlines()) - run.output.count("warning:") == 1, run.output


def test_used_folder_is_refused(faults, four_steps):
    faults.expect(faults.start("ddp, 1 rank", four_steps, slow=False), 2, "holds checkpoints of an earlier run, up to step-4")


def test_nothing_to_resume_is_refused(faults):
    faults.expect(Run(faults.machine, DDP, 1, resume="latest", slow=False), 2, "checkpoint.path is empty")
    faults.expect(Run(faults.machine, DDP, 1, resume="/no/such/folder", slow=False), 2, "does not exist")


def test_folder_in_use_is_refused(faults):
    folder = faults.folder()
    writer = faults.start("ddp, 1 rank", folder)
    assert writer.wait_for_step(2), writer.output
    faults.expect(faults.start("ddp, 1 rank", folder, slow=False), 2, "another run is saving its checkpoints here")
    faults.expect(writer, 0)


def test_no_checkpoint_yet(faults):
    fresh = faults.expect(faults.start("ddp, 1 rank", faults.folder(), ["train.steps=4"], resume="latest", slow=False), 0, "has no checkpoint yet")
    assert fresh.summary["first_step"] == 1


@pytest.mark.parametrize("before, after", [
    ("ddp, 1 rank", "zero3, 2 ranks"), ("ddp, 1 rank, adafactor", "zero3, 2 ranks, adafactor"), pytest.param("zero3, 2 ranks", "zero3, 2 stages", marks=pytest.mark.full),
    pytest.param("zero3, 2 stages", "ddp, 1 rank", marks=pytest.mark.full)])
def test_other_layouts(faults, before, after):
    """Saved by one layout, resumed by another: equal but for the order of sums."""
    folder = faults.folder()
    reference = faults.reference(before)
    faults.expect(faults.start(before, folder, ["checkpoint.every=10", "checkpoint.keep=0"], slow=False), 0)
    resumed = faults.expect(faults.start(after, faults.folder(), resume=os.path.join(folder, "step-10"), slow=False), 0, "differs from the saved one")
    worst = max(abs(a - b) / abs(b) for a, b in zip(resumed.summary["losses"], reference.losses[10:], strict=True))
    assert worst <= 2e-5


@pytest.mark.parametrize("layout", ["zero3, 2 ranks, compressed", "ddp, 2 ranks, onebit_adam", "ddp, 2 ranks, zero_one_adam"])
def test_errors(faults, layout):
    """What each rank keeps of its own: there bit by bit on the same ranks, none on others, and then a line says so."""
    folder = faults.folder()
    faults.expect(faults.start(layout, folder, ["checkpoint.every=10", "checkpoint.keep=0"], slow=False), 0)
    step = os.path.join(folder, "step-10")
    assert faults.go_on(layout, faults.folder(), resume=step) == 10
    settings = LAYOUTS[layout][1] + [f"checkpoint.path={faults.folder()}"]
    faults.expect(Run(faults.machine, settings, 4, resume=step, slow=False), 0, "starts from zero: the checkpoint has none for this rank")


@pytest.mark.parametrize("layout", few_of(FEW, 1))
def test_exported(faults, layout, settings=()):
    """`checkpoint export` gives the bytes of `train --export`."""
    folder, weights = faults.folder(), os.path.join(faults.machine.new_folder(), "weights")
    faults.expect(faults.start(layout, folder, settings, export=weights, slow=False), 0)
    other = os.path.join(faults.machine.new_folder(), "weights")
    status, said = faults.machine.call("checkpoint", "export", folder, other)
    assert status == 0, said
    for name in os.listdir(weights):
        with open(os.path.join(weights, name), "rb") as one, open(os.path.join(other, name), "rb") as two:
            assert one.read() == two.read(), f"{name} differs"


def test_transposed_exported(faults):
    """The same of a model whose files hold matrices transposed."""
    sizes = TINY_MODELS["gpt2"]
    test_exported(faults, "ddp, 1 rank", ["model.plugin=gpt2", "train.steps=2", *(f"model.{key}={value}" for key, value in sizes.items())])


def test_former_format(faults):
    """Saved by the last version of format 1, on two ranks, each with errors of compressed gradients of its own: the same losses on as many
    ranks, and on one what all ranks had alike."""
    folder = pathlib.Path(__file__).parent / "format_1"
    settings = [f"partitioner.zero2.{option}" for option in ("gradients_on_wire=int8", "error_feedback=true")] + ["partitioner.plugin=zero2"]
    losses = [2.842246651649475, 2.8416011333465576]

    def resumed(ranks):
        summary = pathlib.Path(faults.machine.new_folder()) / "summary.json"
        done = subprocess.run([faults.machine.strata, "train", folder / "run.json", "--quiet", "--resume", folder / "step-2", "--summary", summary,
                               *set_arguments([*settings, f"data.path={folder / 'tokens.bin'}"]), *(["--nproc", str(ranks), "--oversubscribe"] if ranks > 1 else [])],
                              env=faults.machine.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(summary.read_text())["losses"], done.stderr

    assert resumed(2)[0] == losses
    alone, said = resumed(1)
    assert alone == pytest.approx(losses, rel=1e-3) and "differs from the saved one" in said, said
    status, said = faults.machine.call("checkpoint", "info", str(folder / "step-2"), "--format", "json")
    assert status == 0 and json.loads(said)["format"] == 1 and json.loads(said)["finite"], said
