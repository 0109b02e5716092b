"""`strata verify`: right runs are equal, and planted defects are found, each by a sentence that names the place.

The plants are a model that tensor-parallel ranks share, a partitioner and an optimizer (planted/). Every one of them is right on one
rank, or in one micro-batch, and trains. The list has those of Megatron-LM's issue 7452: norms of slices of the sequence that are not
summed, a tied head counted twice, a row bias added on every rank, norms of heads that are not reduced, padding in the loss.
"""
import json
import pathlib
import re
import shlex
import tempfile

import pytest
from engine import Engine, set_arguments

FULL = pytest.mark.full
FOUR = ["parallel.tensor=2", "parallel.pipeline=2"]
SEQUENCE = [*FOUR, "parallel.sequence=true"]
SEQUENCE_OF_FOUR = ["parallel.tensor=4", "parallel.sequence=true"]
PLANTED = ["model.plugin=cut_model"]


@pytest.fixture(scope="module")
def planted(strata, plugins, build, folder):
    return Engine(strata, [plugins, build / "verify_defects"], folder)


@pytest.fixture(scope="module")
def config(repository):
    return str(repository / "configs/quickstart.yaml")


def verify(engine, config, *settings, words=()):
    return engine.run("verify", config, "--quiet", *set_arguments([*PLANTED, *settings]), *words)


def found(engine, config, *settings):
    done = verify(engine, config, *settings, words=["--format", "json"])
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


RIGHT = [
    [], FOUR, SEQUENCE, [*SEQUENCE, "model.tie_embeddings=true"], [*FOUR, "model.tie_embeddings=true", "scheduler=zero_bubble_v"],
    ["parallel.tensor=3", "parallel.sequence=true", "partitioner=hybrid", "precision=bf16"],
    [*FOUR, "partitioner=ddp", "scheduler=pipedream", "train.clip=0"], ["partitioner=wrong_partitioner", "optimizer=wrong_optimizer", "optimizer.forgets=false"],
    [*FOUR, "activations.checkpoint=all", "activations.partition=true"], SEQUENCE_OF_FOUR,
    ["offload.parameters=cpu", "offload.optimizer=nvme", "activations.checkpoint=all", "offload.activations=cpu", "precision=fp16"]]


# By default one for tensor-parallel ranks, one for schedules and one for offload.
@pytest.mark.parametrize("settings", [pytest.param(one, marks=[] if number in (3, 4, 10) else FULL) for number, one in enumerate(RIGHT)],
                         ids=" ".join)
def test_right(planted, config, settings):
    done = verify(planted, config, *settings)
    assert done.returncode == 0 and re.search(r"^OK: gradients of \d+ parameters", done.stdout, re.M), done.stdout + done.stderr


READY = ["quickstart", "13b-one-gpu", "tensor-parallel", "pipeline-zero3", "offload-auto", "pythia-160m-zero3-bf16"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "13b-one-gpu" else FULL) for name in READY])
def test_ready_configs(planted, repository, name):
    done = planted.run("verify", str(repository / f"configs/{name}.yaml"), "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr


MODEL_DEFECTS = {
    "norm_not_summed": (SEQUENCE, r"blocks\.1\.mlp_norm", "parallel.sequence", "slices of the sequence"),
    "final_norm_not_summed": (SEQUENCE, r"final_norm", "parallel.sequence", "slices of the sequence"),
    "positions_not_summed": (SEQUENCE, r"positions", "parallel.sequence", "slices of the sequence"),
    "norm_counted_twice": (FOUR, r"blocks\.1\.mlp_norm", "parallel.tensor", "2 times the correct value: summed over the tensor-parallel ranks"),
    "query_norm_not_summed": (FOUR, r"blocks\.1\.query_norm", "parallel.tensor", "not summed over the tensor-parallel ranks"),
    "row_bias_on_every_rank": (SEQUENCE, r"blocks\.1\.down\.bias", "parallel.tensor", ""),
    "column_input_not_summed": (FOUR, r"blocks\.1", "parallel.tensor", "not summed over the tensor-parallel ranks"),
    "row_output_not_summed": (FOUR, r"head", "parallel.tensor", "the forward computes a different loss"),
    "padding_in_loss": (FOUR, r"head", "parallel.tensor", "the forward computes a different loss"),
    "head_input_not_summed": (FOUR, r"final_norm", "parallel.tensor", "not summed over the tensor-parallel ranks"),
    "keys_of_other_heads": ([*FOUR, "model.key_value_heads=4"], r"", "parallel.tensor", ""),
    "one_product_in_16_bits": (SEQUENCE_OF_FOUR, r"", "parallel.tensor", ""),
    "stream_gradient_times_ranks": (FOUR, r"blocks\.1", "parallel.tensor", "2 times the correct value"),
    "tied_head_twice": ([*FOUR, "model.tie_embeddings=true"], r"final_norm", "parallel.pipeline", "2 times the correct value: summed over the pipeline stages"),
}


def params(defects, few):
    return [pytest.param(defect, marks=[] if defect in few else FULL) for defect in defects]


@pytest.mark.parametrize("defect", params(MODEL_DEFECTS, ("norm_not_summed", "padding_in_loss")))
def test_model(planted, config, defect):
    settings, parameter, without, likely = MODEL_DEFECTS[defect]
    said = found(planted, config, *settings, f"model.defect={defect}")
    assert said["step"] == 1
    assert re.match(parameter, said["first"]["parameter"]), said["first"]
    assert without in said["right_without"] and likely in said["likely"], said


@FULL
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_shows_in_half_precision(planted, config, precision):
    """What is a few thousandths off, which rounding would hide."""
    said = found(planted, config, *FOUR, "model.defect=padding_in_loss", f"precision={precision}")
    assert "parallel.tensor" in said["right_without"]


@pytest.mark.parametrize("defect", params(["mean_loss", "dropout_by_batch"], ["mean_loss"]))
def test_model_depends_on_micro_batches(planted, config, defect):
    said = found(planted, config, f"model.defect={defect}")
    assert "with another train.accumulation" in said["likely"]


PARTITIONER_DEFECTS = {
    "mean_over_ranks": (1, "0.5 times the correct value: averaged over the data-parallel ranks"),
    "micro_batch_lost": (1, ""),
    "micro_batch_twice": (1, ""),
    "element_lost": (1, ""),
    "not_published": (2, "the update after it is wrong"),
}


@pytest.mark.parametrize("defect", params(PARTITIONER_DEFECTS, ("element_lost", "not_published")))
def test_partitioner(planted, config, defect):
    step, likely = PARTITIONER_DEFECTS[defect]
    said = found(planted, config, "partitioner=wrong_partitioner", f"partitioner.defect={defect}")
    assert said["step"] == step and "partitioner wrong_partitioner" in said["right_without"] and likely in said["likely"], said


@pytest.mark.parametrize("policy, step", [pytest.param("plain", 2, marks=FULL), ("delayed", 3), pytest.param("speculative", 2, marks=FULL)])
def test_optimizer(planted, config, policy, step):
    """An update by the step before's gradient shows a step later. Both are compared with runs that update plainly."""
    said = found(planted, config, "optimizer=wrong_optimizer", f"step_policy={policy}")
    assert said["step"] == step and "parallel.data" in said["right_without"] and "the update after it is wrong" in said["likely"], said
    assert "step_policy=plain" in said["commands"][1], said["commands"]


# Of plugins that are right on the config's own mesh, and what the settings that are found must have.
NEAR_DEFECTS = {**dict.fromkeys(("norm_not_summed", "final_norm_not_summed", "positions_not_summed"), r"parallel\.sequence=true"),
                **dict.fromkeys(("norm_counted_twice", "query_norm_not_summed", "row_bias_on_every_rank", "column_input_not_summed",
                                 "row_output_not_summed", "padding_in_loss", "head_input_not_summed", "stream_gradient_times_ranks"),
                                r"parallel\.tensor=[2-4]"),
                "keys_of_other_heads": r"parallel\.tensor=[2-4]"}


@FULL
@pytest.mark.parametrize("defect", NEAR_DEFECTS)
def test_near(planted, config, defect):
    """The config's own run is right; --seconds finds the mesh on which it is not, and says no more than it needs."""
    done = verify(planted, config, f"model.defect={defect}", "model.key_value_heads=4", words=["--format", "json", "--seconds", "120"])
    said = json.loads(done.stdout)
    assert done.returncode == 1 and said["runs_near"] > 0, done.stdout + done.stderr
    assert any(re.match(NEAR_DEFECTS[defect], change) for change in said["changes"]) and len(said["changes"]) <= 6, said["changes"]


@pytest.mark.parametrize("settings, seconds", [([], 10), pytest.param(FOUR, 120, marks=FULL),
                                               pytest.param(["partitioner=hybrid", "scheduler=zero_bubble_v", "precision=bf16"], 120, marks=FULL)])
def test_near_right(planted, config, settings, seconds):
    done = verify(planted, config, *settings, words=["--format", "json", "--seconds", str(seconds)])
    assert done.returncode == 0 and json.loads(done.stdout)["runs_near"] > 0, done.stdout + done.stderr


@FULL
def test_precision(planted, config, build):
    """Right with a partitioner that keeps weights whole."""
    policy = f"precision.plugin={build}/verify_combined/libstrata_precision_combined_precision_weight_by_address.so"
    assert verify(planted, config, policy, "partitioner=zero2").returncode == 0
    said = found(planted, config, policy, "partitioner=zero3", "model.layers=6")
    assert "partitioner zero3" in said["right_without"], said


# Orders that cannot be carried out, and what is said of them.
ORDERS = {"reversed_warm_up": "wait for each other for ever", "forgets_backward": "B0.1 is never computed", "holds_more": "peak_live() declares 1",
          "backward_first": "comes before its forward"}


@pytest.mark.parametrize("defect", ["none", *ORDERS])
def test_orders_that_cannot_run(planted, config, defect):
    """With one micro-batch each of them is right: that one is no reason to say so of the scheduler."""
    done = verify(planted, config, "parallel.pipeline=2", "scheduler=wrong_scheduler", f"scheduler.defect={defect}")
    if defect == "none":
        assert done.returncode == 0 and "OK: " in done.stdout, done.stdout + done.stderr
    else:
        assert done.returncode == 2 and ORDERS[defect] in done.stderr and "train.accumulation=" in done.stderr, done.stdout + done.stderr


def test_progress(planted, config):
    """Where a run takes long, whoever waits is told for how long."""
    done = planted.run("verify", config, *set_arguments(PLANTED))
    assert {"scaling the config down", "reference run", "run of the config"} <= set(done.stderr.splitlines()), done.stderr


def test_commands_can_be_run(planted, config, tmp_path):
    """What is printed for a run that is wrong trains, with the kept tokens."""
    done = verify(planted, config, *SEQUENCE, "model.defect=norm_not_summed", words=["--keep", tmp_path / "kept"])
    assert done.returncode == 1 and (tmp_path / "kept/tokens.bin").exists()
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("  strata train ")]
    assert len(commands) == 2
    for command in commands:
        ran = planted.run(*shlex.split(command)[1:], "--quiet")
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("words, said", [
    ([], "config"),
    (["nowhere.yaml"], "nowhere.yaml"),
    (["CONFIG", "--nproc", "3", "--set", "parallel.tensor=2"], "world size 3"),
    (["CONFIG", "--set", "parallel.pipeline=100"], "100 chunks"),
    (["CONFIG", "--set", "parallel.tensor=two"], "parallel.tensor"),
    (["CONFIG", "--set", "scheduler=fastest"], "scheduler/fastest"),
    (["CONFIG", "--set", "step_policy=local"], "verify the run with --set step_policy=plain"),
    (["CONFIG", "--keep", "/proc/none"], "/proc/none: this folder cannot be created")], ids=" ".join)
def test_refusals(planted, config, words, said):
    done = planted.run("verify", "--quiet", *[config if word == "CONFIG" else word for word in words])
    assert done.returncode in (2, 3) and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 3


def test_a_run_that_fails(planted, config, tmp_path):
    """The last words of the run, not a table; and its folder is gone."""
    def folders():
        return set(pathlib.Path(tempfile.gettempdir()).glob("strata-verify-*"))
    before = folders()
    done = verify(planted, config, words=["--set", "model.vocabulary=50"])
    assert done.returncode == 3 and "token" in done.stderr, done.stderr
    assert folders() <= before
