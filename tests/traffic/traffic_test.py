"""The bytes that runs send, compared with the partitioners' headers and `strata plan`.

Logical bytes (what the best algorithm of each collective sends) that every rank of a run sends in one step: the difference of a
run of two steps and one of one. They are counted above the communicator, so ranks are threads. They are the plan's, collective by collective, and over ddp's exactly the
formula: 1, 1 and 1.5 for zero1, zero2 and zero3 at one micro-batch a step; zero3 gathers the embedding once less, as backward does not read it.
"""
import fractions
import functools

import pytest

# Every layer divides by 8 x 2, 8 x 3 and 8 x 4 ranks: nothing is padded.
HIDDEN, LAYERS, VOCABULARY, BYTES = 96, 2, 288, 4
MODEL = {"plugin": "gpt_neox", "hidden_size": HIDDEN, "layers": LAYERS, "heads": 4, "intermediate_size": 384, "vocabulary": VOCABULARY, "seq_len": 16}
EMBEDDING = VOCABULARY * HIDDEN
HEAD = VOCABULARY * HIDDEN + 2 * HIDDEN
BLOCK = 4 * HIDDEN + (3 * HIDDEN * HIDDEN + 3 * HIDDEN) + (HIDDEN * HIDDEN + HIDDEN) + (HIDDEN * 384 + 384) + (384 * HIDDEN + HIDDEN)
PSI = EMBEDDING + LAYERS * BLOCK + HEAD


def gathered(a):
    """Elements that zero3 gathers in a step of `a` micro-batches when layers stay where the next use follows at once."""
    return a * EMBEDDING + 2 * a * LAYERS * BLOCK + a * HEAD


def for_each_use(a):
    """What zero3 gathers, over the model's elements, where each forward and each backward gathers its layer; the embedding's backward does not."""
    return 2 * a - fractions.Fraction(a * EMBEDDING, PSI)


def hybrid(size, inside):
    """Bytes over ddp's: `inside` times the bytes in a group of `size` ranks, and the all-reduce of a part across groups."""
    def ratio(ranks, a):
        replicas = ranks // size
        sent = fractions.Fraction(inside(a) * (size - 1), size) + fractions.Fraction(2 * (replicas - 1), size * replicas)
        return sent / fractions.Fraction(2 * (ranks - 1), ranks)
    return ratio


# Name, settings under the plugin's name, bytes over ddp's by ranks and micro-batches.
CASES = (
    ("ddp", (), lambda n, a: fractions.Fraction(1)),
    ("zero1", (), lambda n, a: fractions.Fraction(1)),
    ("zero1", ("reduce_scatter=false", "reduce_bucket_size=5000"), lambda n, a: fractions.Fraction(3, 2)),
    ("zero2", (), lambda n, a: fractions.Fraction(a + 1, 2)),
    ("zero2", ("gradient_reduction=last_micro_batch",), lambda n, a: fractions.Fraction(1)),
    ("zero3", ("max_reuse_distance=0",), lambda n, a: (for_each_use(a) + a) / 2),
    ("zero3", (), lambda n, a: fractions.Fraction(gathered(a) + a * PSI, 2 * PSI)),
    ("zero3", ("max_reuse_distance=0", "gradient_reduction=last_micro_batch"), lambda n, a: (for_each_use(a) + 1) / 2),
    ("hybrid", ("stage=1",), hybrid(2, lambda a: 2)),
    ("hybrid", ("max_reuse_distance=0",), hybrid(2, lambda a: for_each_use(a) + a)),
)


# Ranks, micro-batches, case.
RUNS = [(2, 1, case) for case in CASES] + [(4, 4, case) for case in CASES if not case[1] or case[0] == "hybrid"]


@pytest.fixture(scope="module")
def sent(in_threads, config):
    """A function: by rank, what a run of so many steps sends, collective -> bytes; every run is made once."""
    @functools.cache
    def sent(ranks, settings, steps):
        result, _ = in_threads.train(config, ranks, [*settings, f"train.steps={steps}"], digests=False)
        assert result.status == 0, f"{result.command}\nexit status {result.status}: {result.output}"
        return result.summary["sent"]
    return sent


@pytest.fixture(scope="module")
def config(engine, tokens):
    return engine.write_config("traffic.json", {
        "device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 1, "micro_batch": 1},
        "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}})


def sent_in_a_step(sent, ranks, settings, step=2):
    """By rank: collective -> bytes."""
    before, after = (sent(ranks, tuple(settings), steps) for steps in (step - 1, step))
    return [{key: more[key] - less.get(key, 0) for key in more} for less, more in zip(before, after, strict=True)]


# The partitioner, its options, and by how much less it then sends in a collective than without them in another: 4 bytes to one or to half
# of one, and a scale per parameter and block.
COMPRESSED = (
    ("zero1", ("weights_on_wire=int8",), "all_gather", "all_gather", (3.95, 4)),
    ("zero3", ("weights_on_wire=int8", "gradients_on_wire=int8"), "all_gather", "all_gather", (3.95, 4)),
    ("zero3", ("weights_on_wire=int8", "gradients_on_wire=int8"), "all_to_all", "reduce_scatter", (3.95, 4)),
    ("zero2", ("gradients_on_wire=int4", "error_feedback=true"), "all_to_all", "reduce_scatter", (7.8, 8)),
)


@pytest.mark.parametrize("name, options, compressed, exact, times", COMPRESSED, ids=[f"{name} {' '.join(options)} {one}" for name, options, one, *_ in COMPRESSED])
def test_compressed(engine, config, sent, name, options, compressed, exact, times):
    plain = [f"partitioner.plugin={name}"]
    settings = plain + [f"partitioner.{name}.{option}" for option in options]
    plan = engine.plan(config, 2, settings)
    for rank, (less, more) in enumerate(zip(sent_in_a_step(sent, 2, settings), sent_in_a_step(sent, 2, plain))):
        assert less[compressed] == plan[rank]["sent"][compressed]["bytes"]
        assert times[0] < more[exact] / less[compressed] < times[1]
        assert compressed == exact or not less.get(exact)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", ["zero1", "zero3"])
def test_weights_as_they_are_multiplied(engine, config, sent, name, ranks):
    """Of a block's parameters its four weights are a byte an element, and norms and biases two; the messages of all ranks are as long as the
    longest, a multiple of 4. Once a step the ranks learn the largest magnitude of each weight. All else is as without, in bf16."""
    norms, biases = 4 * HIDDEN, (3 * HIDDEN, HIDDEN, 384, HIDDEN)
    weights = (3 * HIDDEN * HIDDEN, HIDDEN * HIDDEN, HIDDEN * 384, 384 * HIDDEN)
    bytes_of = [2] * norms + [one for weight, bias in zip(weights, biases) for one in [1] * weight + [2] * bias]
    assert len(bytes_of) == BLOCK
    part = BLOCK // ranks
    message = (max(sum(bytes_of[rank * part:(rank + 1) * part]) for rank in range(ranks)) + 3) // 4 * 4
    blocks, others = (1, EMBEDDING + HEAD) if name == "zero1" else (2, EMBEDDING + HEAD)
    plain = [f"partitioner.plugin={name}", "precision.plugin=fp8"]
    settings = plain + ["precision.fp8.gather=fp8"]
    plan = engine.plan(config, ranks, settings)
    for rank, (less, more) in enumerate(zip(sent_in_a_step(sent, ranks, settings), sent_in_a_step(sent, ranks, plain))):
        planned = {key: value if key == "total" else value["bytes"] for key, value in plan[rank]["sent"].items()}
        assert {key: value for key, value in less.items() if value} == {key: value for key, value in planned.items() if value}, f"rank {rank}"
        assert more["all_gather"] == (others + blocks * LAYERS * BLOCK) * 2 * (ranks - 1) // ranks
        assert less["all_gather"] == others * 2 * (ranks - 1) // ranks + blocks * LAYERS * message * (ranks - 1)
        assert less["all_reduce"] - more["all_reduce"] == LAYERS * (2 * 4 * 4 * (ranks - 1) // ranks)
        assert less["reduce_scatter"] == more["reduce_scatter"]


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2"])
def test_touched_rows(engine, config, sent, name):
    """Of the embedding's gradient the rows of a step's tokens travel, by an all-reduce, and a bit for every row. The plan, which knows no
    tokens, shows the dense sum and the bits: no step sends more."""
    ranks, tokens, row = 2, 2 * 16, HIDDEN * BYTES
    plain, sparse = [f"partitioner.plugin={name}"], [f"partitioner.plugin={name}", f"partitioner.{name}.sparse_gradients=true"]
    bits = (ranks - 1) * VOCABULARY // 8
    dense = EMBEDDING * BYTES * (2 if name == "ddp" else 1) * (ranks - 1) // ranks
    plan = engine.plan(config, ranks, sparse)
    for rank, (less, more) in enumerate(zip(sent_in_a_step(sent, ranks, sparse), sent_in_a_step(sent, ranks, plain))):
        rows = less["total"] - more["total"] + dense - bits
        assert rows % (2 * row * (ranks - 1) // ranks) == 0
        assert 0 < rows <= tokens * 2 * row * (ranks - 1) // ranks
        assert more["total"] + bits == plan[rank]["sent"]["total"]


def test_zero_one_adam(engine, config, sent):
    """Its updates 1 and 2 sum gradients, 3 sends their signs, and of 4 to 6, which are steps of each rank alone, the even ones exchange."""
    settings = ["partitioner.plugin=ddp", "train.clip=0", "train.micro_batch=1",
                "optimizer={plugin: zero_one_adam, var_freeze_step: 3, var_update_scaler: 2, local_step_scaler: 1, local_step_clipper: 2}"]
    totals = [sent(2, tuple(settings), steps)[0]["total"] for steps in range(1, 8)]
    by_update = dict(enumerate((after - before for before, after in zip(totals, totals[1:])), 2))  # start-up is in the first
    sums, gradients = 8 * 8, PSI * BYTES
    assert by_update[2] - sums == gradients
    assert all(31 < gradients / (by_update[update] - sums) < 32 for update in (3, 4, 6))
    assert by_update[5] == by_update[7] == sums
    planned = engine.plan(config, 2, settings)[0]["sent"]["total"]
    assert planned == by_update[2] == max(by_update.values())


@pytest.mark.parametrize("ranks", [2, 4])
def test_signs_of_momenta(sent, ranks):
    """After its warm-up onebit_adam sends a bit where ddp sends 32, twice, and the scales of each tensor; no gradient."""
    settings = ["optimizer={plugin: onebit_adam, freeze_step: 1}", "train.clip=0", "train.micro_batch=1", "partitioner.plugin=ddp"]
    sums = 2 * 8 * 8 * (ranks - 1) // ranks  # as above, of the norm
    for one in sent_in_a_step(sent, ranks, settings):
        assert one["all_reduce"] == sums
        assert one["all_to_all"] == one["all_gather"]
        assert 31 < 2 * (ranks - 1) / ranks * PSI * BYTES / (2 * one["all_to_all"]) < 32


@pytest.mark.parametrize("ranks", [2, 4])
def test_signs_of_momenta_and_weights(sent, ranks):
    """With zero1 these are sent of all elements as with ddp, and the weights. The first step that sends them sums the momenta before."""
    settings = ["optimizer={plugin: onebit_adam, freeze_step: 1}", "train.clip=0", "train.micro_batch=1"]
    ddp, first, later = (sent_in_a_step(sent, ranks, [*settings, f"partitioner.plugin={name}"], step) for name, step in (("ddp", 3), ("zero1", 2), ("zero1", 3)))
    for whole, summed, shared in zip(ddp, first, later, strict=True):
        weights = PSI * BYTES * (ranks - 1) // ranks
        expected = {**whole, "all_gather": whole["all_gather"] + weights, "total": whole["total"] + weights}
        assert {key: value for key, value in shared.items() if value} == {key: value for key, value in expected.items() if value}
        assert summed["all_reduce"] - shared["all_reduce"] == 2 * weights


@pytest.mark.parametrize("ranks", [2, 4])
def test_matrices_put_together(engine, config, sent, ranks):
    """muon's tensor-parallel ranks send each other the half of every matrix in fp32, there and back; a plan counts it."""
    settings = ["partitioner.plugin=zero1", "optimizer.plugin=muon", "parallel.tensor=2"]
    plan = engine.plan(config, ranks, settings)
    found = sent_in_a_step(sent, ranks, settings)
    for rank, one in enumerate(found):
        planned = {key: value["bytes"] for key, value in plan[rank]["sent"].items() if key != "total"}
        assert one["all_to_all"] == planned["all_to_all"] and one["total"] == plan[rank]["sent"]["total"], f"rank {rank}"
    matrices = LAYERS * (3 * HIDDEN * HIDDEN + HIDDEN * HIDDEN + 2 * HIDDEN * 384)
    assert ranks > 2 or sum(one["all_to_all"] for one in found) == matrices * BYTES


@pytest.mark.parametrize("ranks, a, case", RUNS, ids=[f"{ranks} ranks, {a} micro-batches, {' '.join([case[0], *case[1]])}" for ranks, a, case in RUNS])
def test_sent_in_a_step(engine, config, sent, ranks, a, case):
    name, options, ratio = case
    settings = [f"partitioner.plugin={name}", *(f"partitioner.{name}.{option}" for option in options)]
    settings += [f"train.accumulation={a}"] if a > 1 else []  # else by default, as elsewhere in this file
    expected = ratio(ranks, a) * fractions.Fraction(2 * (ranks - 1), ranks) * PSI * BYTES
    plan = engine.plan(config, ranks, settings)
    sums = 2 * 8 * 8 * (ranks - 1) // ranks  # the all-reduce of the norm, two losses, their and the tokens' counts, and three signals'
    for rank, one in enumerate(sent_in_a_step(sent, ranks, settings)):
        planned = {key: value if key == "total" else value["bytes"] for key, value in plan[rank]["sent"].items()}
        assert {key: value for key, value in one.items() if value} == {key: value for key, value in planned.items() if value}, f"rank {rank} and its plan"
        assert one["total"] - sums == expected, f"rank {rank} and the formula, {float(expected)}"
