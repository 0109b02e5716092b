"""The memory of runs compared with the figures of `strata plan`.

1. The ledger: peak bytes by category, tier and rank are those of the dry run, exactly; for every partitioner on 1, 2 and 3 ranks and
   for pythia-14m on 2 and 4, with --full for pythia-70m and 160m too.
2. The tensors: the highest sum of all tensors' bytes that a counting allocator before libtorch's saw during a step (counted_train)
   is the plan's total, to TENSORS_BOUND; in bf16 and 8 bits it may be PACKED_BYTES more where oneDNN multiplies
   bf16 (AVX512-BF16, on Intel's processors also AMX): its products allocate blocks that they pack, which meta tensors do not. 676,992 bytes were seen.
3. The process: peak resident memory, less that of a run with a model of a few kilobytes, is the plan's total and its bytes on the host
   tier to RESIDENT_BOUND. Beside tensors that holds what matrix products pack and what the heap keeps: 1.3 to 2.4 % was seen,
   and 5.9 % where the products of the head are a large part of all there is (RESIDENT_HEAD_BOUND).
"""
import json
import os
import pathlib
import re
import tempfile

import pytest
from commands import call
from engine import ledger_difference
from place import REPOSITORY, usable_plugins

TENSORS_BOUND = 0.0005
PACKED_BYTES = 1 << 20
RESIDENT_BOUND = 0.04
RESIDENT_HEAD_BOUND = 0.08
# Large enough that a kernel's scratch of a megabyte is little of it.
MEDIUM = {"plugin": "gpt_neox", "hidden_size": 192, "layers": 3, "heads": 3, "vocabulary": 6007, "seq_len": 128}
LARGE = {"plugin": "gpt_neox", "preset": "pythia-70m", "seq_len": 128}
EMPTY = ["model.preset=none", "model.hidden_size=8", "model.layers=1", "model.heads=1", "model.vocabulary=257", "model.seq_len=8"]


class Memory:
    def __init__(self, engine, counted, tokens):
        self.engine, self.counted, self.tokens = engine, counted, tokens
        self.plugins = engine.plugins()

    def of_partitioner(self, name, ranks):
        """Its settings; one that cuts the ranks into groups is given a size that divides them."""
        options = next(plugin["options"] for plugin in self.plugins if plugin["plugin"] == "partitioner/" + name)
        divisor = max(size for size in (1, 2, 3) if ranks % size == 0)
        groups = [f"partitioner.{name}.shard_size={divisor}"] if any(option["name"] == "shard_size" for option in options) else []
        return [f"partitioner.plugin={name}"] + groups

    def config(self, model, steps, micro_batch=4):
        return self.engine.write_config(f"{model.get('preset', 'medium')}.json", {
            "device": "cpu", "model": model, "data": {"path": self.tokens}, "train": {"steps": steps, "micro_batch": micro_batch},
            "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}})


@pytest.fixture(scope="module")
def memory(engine_with_projects, build, tokens):
    return Memory(engine_with_projects, build / "bin/counted_train", tokens)


def packs(setting):
    processor = pathlib.Path("/proc/cpuinfo").read_text().split()
    faster = "avx512_bf16" in processor and ("amx_bf16" in processor or "GenuineIntel" not in processor)
    return re.match(r"precision.*(bf16|fp8)$", setting) and faster


def check_tensors(memory, ranks, settings):
    """Ledger and counting allocator, by one run."""
    config = memory.config(MEDIUM, 2, micro_batch=8)
    plan = memory.engine.plan(config, ranks, settings)
    counts = os.path.join(tempfile.mkdtemp(prefix="counts", dir=memory.engine.work), "counts")
    call([memory.counted, config, counts, ranks, *settings], env=memory.engine.environment)
    with open(counts + ".summary") as file:
        assert not ledger_difference(json.load(file), plan)
    packed = PACKED_BYTES if any(map(packs, settings)) else 0
    for rank, planned in enumerate(plan):
        with open(f"{counts}.{rank}") as file:
            peak = json.load(file)["peak"]
        print(f"{peak} / {planned['total']} = {peak / planned['total']:.4f}")
        bound = TENSORS_BOUND * planned["total"]
        assert -bound <= peak - planned["total"] <= bound + packed, f"rank {rank}'s tensors took {peak} bytes, and its plan says {planned['total']}"


def check_process(memory, ranks, settings, bound=RESIDENT_BOUND):
    config = memory.config(LARGE, 2)
    plan = memory.engine.plan(config, ranks, settings)
    run, empty = (memory.engine.train(config, ranks, settings + extra, timeout=300) for extra in ([], EMPTY))
    for result in (run, empty):
        assert result.status == 0, result.output
    for rank, planned in enumerate(plan):
        expected = planned["total"] + sum(planned["peak_bytes"].get("host", {}).values())
        taken = 2**20 * (run.summary["memory"][rank]["peak_rss_mib"] - empty.summary["memory"][rank]["peak_rss_mib"])
        print(f"{taken:.0f} / {expected} = {taken / expected:.4f}")
        assert abs(taken - expected) <= bound * expected, f"rank {rank}'s resident memory grew by {taken:.0f} bytes, and its plan says {expected}"


def project_plugins(kind):
    """The example projects' plugins are known when they are built: their names are those of their folders."""
    folders = sorted((REPOSITORY / "examples/plugins").glob("*/CMakeLists.txt"))
    return [folder.parent.name for folder in folders if re.search(rf"KIND\s+{kind}\b", folder.read_text())]


def names(kind):
    return sorted([name.split("/")[1] for name in usable_plugins() if name.startswith(kind + "/")] + project_plugins(kind))


def partitioners_in_turn():
    """(partitioner, ranks, precision): precisions take turns, and so do the ranks of those that are not only for --full."""
    precisions = names("precision")
    for number, partitioner in enumerate(names("partitioner")):
        for ranks in (1, 2, 3):
            marks = [] if ranks == 1 + number % 3 else pytest.mark.full
            yield pytest.param(partitioner, ranks, precisions[(number + ranks) % len(precisions)], marks=marks)


@pytest.mark.parametrize("partitioner, ranks, precision", partitioners_in_turn())
def test_tensors_of_partitioner(memory, partitioner, ranks, precision):
    check_tensors(memory, ranks, memory.of_partitioner(partitioner, ranks) + [f"precision.plugin={precision}", "train.accumulation=2"])


@pytest.mark.parametrize("offload", names("offload"))
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_tensors_of_offload(memory, offload, precision):
    place = [f"offload.optimizer.nvme.path={tempfile.gettempdir()}"] if offload == "nvme" else []
    check_tensors(memory, 2, ["partitioner.plugin=zero3", f"offload.optimizer.plugin={offload}", *place, f"precision.plugin={precision}"])


@pytest.mark.parametrize("ranks, settings", [
    (2, ["partitioner=zero1", "partitioner.reduce_bucket_size=100000", "partitioner.overlap_comm=false"]),
    (2, ["partitioner=zero1", "optimizer={plugin: onebit_adam, freeze_step: 1}", "train.clip=0"]),
    (2, ["partitioner=zero2", "partitioner.gradient_reduction=last_micro_batch", "train.accumulation=2"]),
    (2, ["partitioner=zero2", "partitioner.reduce_scatter=false", "train.accumulation=2"]),
    (2, ["partitioner=zero3", "partitioner.persistence_threshold=200000", "partitioner.max_reuse_distance=0"]),
    (2, ["partitioner=hybrid", "partitioner.stage=2", "partitioner.shard_size=1", "train.accumulation=2"]),
    (2, ["partitioner=hybrid", "partitioner.secondary_shard=true", "precision=bf16"]),
    (2, ["partitioner=hybrid", "partitioner.secondary_shard=true", "precision=fp32"]),
    (2, ["partitioner.plugin=zero3", "activations.checkpoint=all", "partitioner.zero3.prefetch_layers=3"]),
    (2, ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.accumulation=4"]),
    (1, ["model.tie_embeddings=true", "optimizer.plugin=sgd"])])
def test_tensors(memory, ranks, settings):
    check_tensors(memory, ranks, settings)


@pytest.mark.parametrize("saved", [False, True])
def test_tensors_of_publishing(memory, tmp_path, saved):
    """Before the first step and before a checkpoint the values of all layers are published, each by way of a message."""
    checkpoints = [f"checkpoint.path={tmp_path}/checkpoints", "checkpoint.every=1"] if saved else []
    check_tensors(memory, 2, ["partitioner={plugin: zero2, weights_on_wire: int8}", f"offload.optimizer={{plugin: nvme, path: {tmp_path}}}", *checkpoints])


@pytest.mark.parametrize("ranks, settings, bound", [
    (1, ["partitioner.plugin=ddp"], RESIDENT_BOUND),
    (2, ["partitioner.plugin=zero3"], RESIDENT_BOUND),
    pytest.param(3, ["partitioner.plugin=zero3", "precision.plugin=bf16"], RESIDENT_BOUND, marks=pytest.mark.full),
    pytest.param(1, ["offload.optimizer.plugin=cpu", "precision.plugin=bf16"], RESIDENT_BOUND, marks=pytest.mark.full),
    pytest.param(1, ["activations.checkpoint=all", "train.micro_batch=8"], RESIDENT_HEAD_BOUND, marks=pytest.mark.full),
    pytest.param(2, ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.accumulation=2"], RESIDENT_HEAD_BOUND, marks=pytest.mark.full)])
def test_process(memory, ranks, settings, bound):
    check_process(memory, ranks, settings, bound)


def ledgers():
    """(preset, ranks, partitioner)."""
    for preset in ("pythia-14m", "pythia-70m", "pythia-160m"):
        for ranks in (2, 4):
            for number, partitioner in enumerate(names("partitioner")):
                few = preset == "pythia-14m" and (ranks == 2 or number % 3 == 0)
                yield pytest.param(preset, ranks, partitioner, marks=[] if few else pytest.mark.full)


@pytest.mark.parametrize("preset, ranks, partitioner", ledgers())
def test_ledger(memory, preset, ranks, partitioner):
    """The ledger of two steps of a model of its real size."""
    settings = [f"model.preset={preset}", "model.seq_len=16", "train.micro_batch=1", *memory.of_partitioner(partitioner, ranks)]
    config = memory.config(LARGE, 2)
    plan = memory.engine.plan(config, ranks, settings)
    run = memory.engine.train(config, ranks, settings, timeout=600)
    assert run.status == 0, run.output
    assert not ledger_difference(run.summary, plan)
