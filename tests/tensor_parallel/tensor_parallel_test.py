"""Layers that the ranks of a tensor group share: what they send, what they keep for backward, what they draw, and what is refused.

That the numbers are those of one rank is shown by the matrix and by interop's families_test.py. Where only numbers count, ranks are threads.
"""
import fractions
import re

import pytest
from commands import told
from engine import TINY_MODELS, relative_difference, set_arguments

HIDDEN, LAYERS, VOCABULARY, INNER, TOKENS, BYTES = 96, 2, 288, 384, 32, 4
SIZES = {"hidden_size": HIDDEN, "layers": LAYERS, "heads": 4, "intermediate_size": INNER, "vocabulary": VOCABULARY, "seq_len": TOKENS // 2}
TENSOR, SEQUENCE = ["parallel.tensor=2"], ["parallel.tensor=2", "parallel.sequence=true"]
FAMILIES = ("gpt_neox", "gpt2", "llama")


@pytest.fixture(scope="module")
def config(engine, tokens):
    def write(model, **sizes):
        return engine.write_config(f"{model}.json", {
            "device": "cpu", "model": {"plugin": model, **SIZES, **sizes}, "data": {"path": tokens},
            "train": {"steps": 3, "micro_batch": 2}, "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}})
    return write


def norms_of(model):
    """Elements of the parameters that are used on the residual stream: of all norms, and gpt2's table of positions."""
    vectors = (2 * LAYERS + 1) * (1 if model == "llama" else 2)
    return vectors * HIDDEN + (1024 * HIDDEN if model == "gpt2" else 0)


def formula(model, ranks, sequence):
    """Bytes that a rank sends in a step of one micro-batch. A pair of linears, of which each block has two, costs four passages of the
    stream, of which all-reduces are two each; with sequence parallelism a fifth, as a column's input is gathered again in backward.
    Embedding and head together make one pair without that. The loss sends three numbers a token."""
    passage = fractions.Fraction(ranks - 1, ranks) * TOKENS * HIDDEN * BYTES
    whole = fractions.Fraction(2 * (ranks - 1), ranks)
    statistics = whole * 3 * TOKENS * BYTES
    pairs = LAYERS * 2
    if not sequence:
        return pairs * 4 * passage + 4 * passage + statistics
    return pairs * 5 * passage + 4 * passage + statistics + whole * norms_of(model) * BYTES


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("model", FAMILIES)
def test_bytes_sent(engine, config, model, ranks, sequence):
    settings = [f"parallel.tensor={ranks}", f"parallel.sequence={str(sequence).lower()}", "model.tie_embeddings=false"]
    one, two = (engine.train(config(model), ranks, [*settings, f"train.steps={steps}"]) for steps in (1, 2))
    assert one.status == two.status == 0, two.output
    plan = engine.plan(config(model), ranks, settings)
    sums = 2 * 8 * 8 * (ranks - 1) // ranks  # the all-reduce of the norm, two losses, their and the tokens' counts, and three signals'
    for rank in range(ranks):
        sent = two.summary["sent"][rank]["total"] - one.summary["sent"][rank]["total"]
        assert sent == plan[rank]["sent"]["total"]
        assert sent - sums == formula(model, ranks, sequence)


def kept_by_a_layer(engine, path, settings, ranks):
    """Bytes that one more block keeps for backward: of a plan's peak, what is no state."""
    def kept(layers):
        [*_, rank] = engine.plan(path, ranks, [*settings, f"model.layers={layers}"])
        states = {"parameter", "gradient", "optimizer", "master"}
        return rank["total"] - sum(value for category, value in rank["peak_bytes"]["device"].items() if category in states)
    return fractions.Fraction(kept(12) - kept(6), 6) - 8  # its flat parameter's squared norm


@pytest.mark.parametrize("model", FAMILIES)
def test_activations_shrink(engine, config, model):
    """Per block, as Korthikanti et al. count (arXiv 2205.05198, section 4): what lies between a pair of linears is shared by the ranks,
    and with sequence parallelism the stream's part is, too."""
    path, more = config(model), ["model.seq_len=128", "train.micro_batch=4"]
    one, tensor, sequence = (kept_by_a_layer(engine, path, [*more, *settings], ranks) for settings, ranks in (([], 1), (TENSOR, 2), (SEQUENCE, 2)))
    stream = 128 * 4 * HIDDEN * BYTES
    statistics = 128 * 4 * BYTES * 2 * (1 if model == "llama" else 2)
    of_stream = (3 if model == "gpt_neox" else 4) * stream + statistics  # the block's input, norms' results and what they read
    assert tensor == of_stream + (one - of_stream) / 2
    assert sequence == one / 2


@pytest.mark.parametrize("model", FAMILIES)
def test_partitioned_inputs(engine, in_threads, config, model):
    """ZeRO-R's P_a: of what a recomputed layer read each rank keeps a part, and gathering it costs a passage of the stream. Every bit is as
    without, whatever divides, on other memory tiers and in a split backward too."""
    path, recomputed, parted = config(model), [*TENSOR, "activations.checkpoint=all"], [*TENSOR, "activations.checkpoint=all", "activations.partition=true"]
    stream = TOKENS * HIDDEN * BYTES
    whole, parts = (kept_by_a_layer(engine, path, settings, 2) for settings in (recomputed, parted))
    assert (whole, parts) == (stream, stream / 2)
    sent = [engine.plan(path, 2, settings)[1]["sent"]["total"] for settings in (recomputed, parted)]
    assert sent[1] - sent[0] == LAYERS * stream / 2  # the head is not computed again
    odd = ["train.micro_batch=1", "model.seq_len=17", "model.attention_dropout=0.2"]
    for ranks, more in ((2, odd), (2, ["offload.activations=cpu"]), (4, ["parallel.pipeline=2", "train.accumulation=4", "scheduler=zero_bubble_h1"]),
                        (3, ["parallel.tensor=3", "model.heads=6", "model.hidden_size=96", "model.vocabulary=289", *odd])):
        runs = [in_threads.train(path, ranks, [*settings, *more])[0] for settings in (recomputed, parted)]
        assert runs[0].status == runs[1].status == 0, runs[1].output
        assert runs[0].losses == runs[1].losses, more


def test_times_of_collectives(engine, config):
    """A run says what its tensor-parallel collectives took and how much of it products hid; a trace says where."""
    path = config("llama")
    for settings in (TENSOR, SEQUENCE):
        run = engine.train(path, 2, settings)
        times = run.summary["tensor"]
        assert times["alone_s"] > 0 and times["beside_s"] > 0 and 0 <= times["hidden"] <= 1
        # Of a block's and the head's pair of linears: forward there and back, backward back, alone; backward there beside the products.
        passage = fractions.Fraction(TOKENS * HIDDEN * BYTES, 2)
        pairs = 3 * 2 * LAYERS
        assert times["beside_bytes"] == pairs * 2 * passage
        assert times["alone_bytes"] == pairs * (2 if settings == TENSOR else 3) * passage
        assert re.search(r"tensor parallelism: waits for collectives [\d.]+ s per step; matmuls hid \d+ % of the overlapped ones", run.output), run.output
    assert engine.train(path, 1, []).summary["tensor"] is None


@pytest.mark.parametrize("model", FAMILIES)
def test_dropout_is_the_same_on_every_layout(in_threads, config, model):
    path = config(model, **{key: TINY_MODELS[model][key] for key in ("hidden_size", "heads", "intermediate_size")})
    settings = ["train.global_batch=8", "model.attention_dropout=0.2", *([] if model == "llama" else ["model.hidden_dropout=0.3"])]
    def losses(ranks, *more):
        result, _ = in_threads.train(path, ranks, [*settings, *more])
        assert result.status == 0, result.output
        return result.losses
    one = losses(1, "train.micro_batch=4")
    assert relative_difference(losses(1, "model.attention_dropout=0", "train.micro_batch=4"), one) > 1e-5
    for ranks, more in ((1, ["train.micro_batch=1"]), (2, TENSOR), (2, SEQUENCE), (2, ["partitioner=zero3"]),
                        (4, [*SEQUENCE, "partitioner=zero3", "activations.checkpoint=all"]), (4, [*SEQUENCE, "parallel.pipeline=2", "scheduler=1f1b"])):
        assert relative_difference(losses(ranks, *more), one) <= 2e-6, more


@pytest.mark.parametrize("ranks, more", [(2, TENSOR), (2, SEQUENCE), (2, ["parallel.pipeline=2", "scheduler=1f1b"]), (2, []), (2, ["partitioner=zero1"])],
                         ids=["tensor", "sequence", "stages", "data", "data, shared state"])
def test_own_gradients_are_counted_once(engine, config, ranks, more):
    """Of gradients that no rank has added up: what tensor-parallel ranks or stages hold alike is one's; of data-parallel ranks the terms
    add up in a projection, which is linear, and not in a norm."""
    settings = ["partitioner=ddp", "optimizer={plugin: onebit_adam, freeze_step: 1, epsilon: 1e-3}", "train.clip=0", "train.steps=2", "train.global_batch=4",
                "model.tie_embeddings=true"]
    one, many = (engine.train(config("gpt2"), count, [*settings, *own], with_gradients=True) for count, own in ((1, []), (ranks, more)))
    assert one.status == many.status == 0, many.output
    alone, shared = one.steps[1], many.steps[1]
    worst = max(abs(shared["gradients"][name][0] - projection) / norm for name, (projection, norm) in alone["gradients"].items() if norm > 0)
    assert worst < 1e-4
    if more and more != ["partitioner=zero1"]:
        assert abs(shared["grad_norm"] / alone["grad_norm"] - 1) < 1e-5
        assert max(abs(shared["gradients"][name][1] / norm - 1) for name, (_, norm) in alone["gradients"].items() if norm > 0) < 1e-4


@pytest.mark.parametrize("model, ranks, settings, words", [
    ("gpt_neox", 3, ["parallel.tensor=3"], "the model has heads 4, which is not divisible by 3"),
    ("llama", 4, ["parallel.tensor=4", "model.key_value_heads=2"], "the model has key_value_heads 2, which is not divisible by 4"),
    ("gpt2", 2, ["activations.checkpoint=all", "activations.partition=true"], "activations.partition is true, and parallel.tensor is 1"),
    ("gpt2", 2, [*SEQUENCE, "activations.checkpoint=all", "activations.partition=true"], "activations.partition is true, and parallel.sequence is true"),
    ("gpt2", 2, [*TENSOR, "activations.partition=true"], "activations.partition is true, and activations.checkpoint is none"),
    ("gpt2", 2, ["parallel.sequence=true"], "parallel.sequence is true, and parallel.tensor is 1"),
    ("gpt2", 2, ["parallel.tensor=2", "optimizer.plugin=adamw_8bit"], "parallel.tensor is 2, and optimizer/adamw_8bit updates"),
    ("gpt2", 2, [*SEQUENCE, "model.mlp_chunk=8"], "mlp_chunk is 8 and parallel.sequence is true"),
    ("llama", 1, ["model.key_value_heads=3"], "heads 4 is not divisible by key_value_heads 3"),
    ("gpt2", 2, ["parallel.tensor=2", "model.vocabulary=1"], "too few")])
def test_refused(engine, config, model, ranks, settings, words):
    done = engine.run("train", config(model), "--nproc", str(ranks), *set_arguments(settings))
    assert done.returncode == 2 and words in done.stderr, told(done)
    assert len([line for line in done.stderr.splitlines() if line.startswith("strata:")]) == 1, told(done)
