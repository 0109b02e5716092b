"""Output of `strata plan`: of many ranks, in seconds; of a memory budget, by plans of the micro-batch it names and the next; of wrong
input, in one line that names what was found."""
import json
import pathlib
import subprocess
import time

import pytest
from commands import check_refused, run, told
from engine import set_arguments

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

CONFIG = "CONFIG"  # stands for the config's path
TABLE_OF_DDP = ["--table", "--params", "1e9", "--partitioners", "ddp"]
ZERO3_BF16 = ["partitioner=zero3", "precision=bf16"]


def test_1024_ranks_take_seconds(engine, config):
    begin = time.monotonic()
    plan = engine.call("plan", config, "--ranks", "1024", "--format", "json", *set_arguments(["partitioner=zero3", "parallel.pipeline=2"]))
    assert time.monotonic() - begin <= 20
    assert [rank["rank"] for rank in plan["ranks"]] == [0, 511, 512, 1023] and plan["world_size"] == 1024
    assert "2 of 1024 ranks are shown" in engine.run("plan", config, "--ranks", "1024").stdout


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("partitioner", ["zero1", "zero3"])
def test_no_rank_needs_more_than_the_first(engine, config, partitioner, optimizer):
    """13 ranks divide nothing evenly."""
    ranks = engine.plan(config, 13, [f"partitioner={partitioner}", f"optimizer={optimizer}"])
    assert len(ranks) == 13 and max(rank["needed"] for rank in ranks) == ranks[0]["needed"]


def test_moments_of_8_bits(engine, config):
    """Two bytes a parameter, and two scales for each 256; vectors have eight."""
    plan = engine.plan(config, 1, ["optimizer=adamw_8bit"])[0]
    assert 2.03 <= plan["peak_bytes"]["device"]["optimizer"] / plan["trainable"] <= 2.06


@pytest.mark.parametrize("layout", [["parallel.tensor=2"], ["parallel.pipeline=2"], ["parallel.tensor=2", "parallel.pipeline=2"], ["partitioner=zero3"]])
def test_operations_of_a_step(engine, config, layout):
    """A step computes as much on every layout."""
    def operations(ranks, *settings):
        arguments = set_arguments(["train.global_batch=8", "train.micro_batch=2", *settings])
        return json.loads(engine.run("plan", config, "--format", "json", "--ranks", ranks, *arguments).stdout)["model_flops_per_step"]
    assert operations(4, *layout) == pytest.approx(operations(1), rel=1e-12)


def test_averages_of_groups(engine, config):
    """Once in so many steps a rank of two groups sends its fp32 weights to the other, and in a step next to nothing."""
    local = ["partitioner=hybrid", "partitioner.shard_size=1", "step_policy=local", "local.steps=20"]
    plan = engine.plan(config, 2, local)[0]
    assert plan["averages"]["bytes"] == 4 * plan["trainable"] and plan["sent"]["total"] < 1000
    assert "averages, in 20 steps" in engine.run("plan", config, "--ranks", 2, *set_arguments(local)).stdout


@pytest.mark.parametrize("settings, head, block", [
    (["partitioner=ddp"], 0, 0), (["partitioner=zero2"], 1, 1), (["partitioner=zero3"], 1, 2),
    (["partitioner=zero3", "partitioner.max_reuse_distance=0"], 2, 2)])
def test_gathers_of_each_layer(engine, config, settings, head, block):
    plan = engine.plan(config, 2, settings)[0]
    times = [layer["times"] for layer in plan["gathers"]]
    calls = plan["sent"].get("all_gather", {"calls": 0})["calls"]
    assert times[-1] == head and times[1] == block and sum(times) == calls


@pytest.mark.parametrize("ranks, budget", [(1, 900_000_000), (2, 2_000_000_000)])
def test_largest_micro_batch(engine, config, ranks, budget):
    done = engine.run("plan", config, "--ranks", ranks, "--memory", budget, "--format", "json", *set_arguments(ZERO3_BF16))
    memory = json.loads(done.stdout)["memory"]
    assert done.returncode == 0 and memory["fits"]
    largest = memory["largest_micro_batch"]
    needed = [max(rank["needed"] for rank in engine.plan(config, ranks, [*ZERO3_BF16, f"train.micro_batch={size}"])) for size in (largest, largest + 1)]
    assert needed[0] <= budget < needed[1], f"{largest} samples fit, it says"


def test_budget_for_no_micro_batch(engine, config):
    done = engine.run("plan", config, "--memory", "100MB", *set_arguments(ZERO3_BF16))
    assert done.returncode == 1 and "does not fit into" in done.stdout and "fits: none" in done.stdout, told(done)


def test_budget_for_a_smaller_micro_batch(engine, config):
    done = engine.run("plan", config, "--memory", "900MB", *set_arguments(ZERO3_BF16), "--set", "train.micro_batch=4096")
    assert done.returncode == 1 and "does not fit into" in done.stdout, told(done)
    assert "largest micro-batch that fits: " in done.stdout and "fits: none" not in done.stdout, told(done)


@pytest.mark.parametrize("arguments", [[CONFIG, "--ranks", "2"], ["--table", "--params", "1e9", "--ranks", "1,8", "--partitioners", "ddp,zero3"]],
                         ids=["plan", "table"])
@pytest.mark.parametrize("form", ["table", "markdown", "csv"])
def test_formats(engine, config, form, arguments):
    done = engine.run("plan", *[config if word == CONFIG else word for word in arguments], "--format", form)
    assert done.returncode == 0 and not done.stderr, told(done)
    assert form != "csv" or len({line.count(",") for line in done.stdout.splitlines()}) == 1, done.stdout


@pytest.mark.parametrize("arguments, words", [
    ([], "no config given"),
    ([CONFIG, "--ranks", "0"], "--ranks"),
    ([CONFIG, "--ranks", "2,4"], "--ranks"),
    ([CONFIG, "--ranks", "many"], "many"),
    ([CONFIG, "--ranks", "1048577"], "1048577"),
    ([CONFIG, "--ranks", "3", "--set", "parallel.pipeline=2"], "pipeline 2"),
    ([CONFIG, "--memory", "plenty"], "plenty"),
    ([CONFIG, "--memory", "0"], "--memory"),
    ([CONFIG, "--params", "1e9"], "--table"),
    (["--model", "gpt_neox:pythia-14m,gpt_neox:pythia-70m", CONFIG], "--model"),
    (["--table"], "no model given"),
    ([*TABLE_OF_DDP, "--memory", "32GB"], "--memory"),
    (["--table", "--params", "7.5B"], "7.5B"),
    (["--table", "--params", "1000"], "1 %"),
    (["--table", "--params", "-5"], "-5"),
    (["--table", "--params", "1e30"], "1e30"),
    (["--table", "--params", "1e9", "--partitioners", "zero4"], "zero4"),
    (["--table", "--params", "1e9", "--partitioners", ""], "--partitioners"),
    (["--table", "--params", "1e9", "--set", "model.layers=3"], "model.layers"),
    (["--table", "--params", "1e9", "--bookkeeping", "zero_papers"], "zero_paper"),
    (["--table", "--model", "gpt_neox:pythia-15m"], "pythia-14m"),
    (["--table", "--model", "gpt_neox:/nowhere/config.json"], "/nowhere/config.json"),
    (["--table", "--model", "gpt_neox:/"], "/"),
    (["--table", "--model", "bert:large"], "bert"),
    (["--table", "--params", "1e9", "--ranks", "0"], "--ranks"),
    (["--table", "--params", "1e9", "--ranks", "8", "--partitioners", "hybrid", "--set", "partitioner.hybrid.shard_size=3"], "3")])
def test_refused(engine, config, arguments, words):
    done = engine.run("plan", *[config if word == CONFIG else word for word in arguments])
    lines = [line for line in done.stderr.splitlines() if line]
    assert done.returncode not in (0, 1) and len(lines) == 1 and words in done.stderr and not done.stdout, told(done)


@pytest.mark.parametrize("arguments", [["plan", CONFIG], ["--help"]], ids=["plan", "help"])
def test_full_disk(engine, config, arguments):
    with open("/dev/full", "w") as full:
        done = run([engine.strata, *[config if word == CONFIG else word for word in arguments]], env=engine.environment, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "standard output" in done.stderr, told(done)


def test_13b_on_one_gpu(engine):
    """The config of 13 billion parameters fits a GPU of 16 GB in a host of 128 GiB."""
    plan = engine.call("plan", str(REPOSITORY / "configs/13b-one-gpu.yaml"), "--set", "communicator.plugin=gloo", "--format", "json")
    [rank] = plan["ranks"]
    host, disk = (sum(rank["peak_bytes"][tier].values()) for tier in ("host", "disk"))
    assert plan["parameters"] > 13e9 and rank["total"] < 16e9 and host < 64 * 2**30 and disk == 16 * rank["trainable"], plan


def test_update_on_the_host_of_parameters_on_a_disk(engine, config, tmp_path):
    settings = ["device=cuda", "communicator=gloo", "partitioner=zero3", "offload.optimizer=cpu", f"offload.parameters={{plugin: nvme, path: {tmp_path}}}"]
    check_refused(engine.run("plan", config, *set_arguments(settings)), "offload.parameters", "offload.optimizer", "the same home")
