"""The table of the ZeRO paper, from dry runs of the real partitioners by `strata plan --table`, and models by preset, file and size."""
import json
import os
import time

import pytest

RANKS = (1, 4, 16, 64, 256, 1024)
STAGES = ("zero1", "zero2", "zero3")
# Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv:1910.02054, Table 1: GB of model
# state on a device, by degree of data parallelism, for P_os, P_os+g and P_os+g+p. As printed there, digits and all.
TABLE = {
    "7.5e9": (("120", "120", "120"), ("52.5", "41.3", "30"), ("35.6", "21.6", "7.5"), ("31.4", "16.6", "1.88"), ("30.4", "15.4", "0.47"),
              ("30.1", "15.1", "0.12")),
    "128e9": (("2048", "2048", "2048"), ("896", "704", "512"), ("608", "368", "128"), ("536", "284", "32"), ("518", "263", "8"),
              ("513", "257", "2")),
    "1e12": (("16000", "16000", "16000"), ("7000", "5500", "4000"), ("4750", "2875", "1000"), ("4187", "2218", "250"),
             ("4046", "2054", "62.5"), ("4011", "2013", "15.6")),
}
BOUND = 0.01


def exact(parameters, ranks, partitioner):
    """Bytes by the paper's section 5: 2 + 2 + 12 a parameter, each part divided where the stage divides it."""
    parts = {"ddp": (1, 1, 1), "zero1": (1, 1, ranks), "zero2": (1, ranks, ranks), "zero3": (ranks, ranks, ranks)}[partitioner]
    return parameters * sum(bytes_ / part for bytes_, part in zip((2, 2, 12), parts))


def half_digit(printed):
    """Half of the last digit of a number as it is printed: 0.12 stands for 0.115 to 0.125."""
    return 0.5 * 10 ** -len(printed.partition(".")[2])


def table(engine, *arguments):
    """What `strata plan --table` says, and its rows by size, ranks and partitioner."""
    found = engine.call("plan", "--table", "--format", "json", *arguments)
    return found, {(row["params"], row["ranks"], row["partitioner"]): row for row in found["rows"]}


class Paper:
    def __init__(self, engine):
        begin = time.monotonic()
        self.table, self.rows = table(engine, "--params", ",".join(TABLE), "--ranks", ",".join(map(str, RANKS)), "--partitioners", ",".join(("ddp",) + STAGES))
        self.seconds = time.monotonic() - begin


@pytest.fixture(scope="module")
def paper(engine):
    return Paper(engine)


def test_table_is_whole_and_quick(paper):
    assert len(paper.rows) == len(TABLE) * len(RANKS) * 4
    assert paper.seconds <= 60
    for shape in paper.table["shapes"]:
        assert abs(shape["parameters"] / shape["params"] - 1) <= BOUND, f"{shape} is further than 1 % from what was asked"


@pytest.mark.parametrize("partitioner", ("ddp",) + STAGES)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("size", TABLE)
def test_bytes_a_parameter(paper, size, ranks, partitioner):
    parameters = round(float(size))
    row = paper.rows[parameters, ranks, partitioner]
    assert abs(row["bytes"] / exact(parameters, ranks, partitioner) - 1) <= BOUND, f"{row} is not 2 + 2 + 12 bytes a parameter"
    assert row["bytes"] == row["parameter_bytes"] + row["gradient_bytes"] + row["optimizer_bytes"]
    if partitioner in STAGES:
        text = TABLE[size][RANKS.index(ranks)][STAGES.index(partitioner)]
        # 1 % of the printed figure; 0.12 was rounded by more than that, so there what would be printed.
        held = row["bytes"] / 1e9
        assert abs(held - float(text)) <= max(BOUND * float(text), half_digit(text) if float(text) < 1 else 0.0), f"the paper prints {text}"


def test_fp32_gradients(engine):
    """Bytes a parameter on 64 ranks. The 16-bit copy of an fp32 gradient is kept whole by ddp only."""
    expected = {"ddp": 2 + 2 + 16, "zero1": 2 + 4 + 12 / 64, "zero2": 2 + 16 / 64, "zero3": 18 / 64}
    _, rows = table(engine, "--params", "7.5e9", "--ranks", "64", "--partitioners", ",".join(expected), "--bookkeeping", "fp32_gradients")
    for (_, _, partitioner), row in rows.items():
        each = row["bytes"] / row["parameters"]
        assert abs(each / expected[partitioner] - 1) <= 0.001, f"{partitioner} holds {each:.4f} bytes a parameter, not {expected[partitioner]:.4f}"


def test_models_by_preset_file_and_config(engine, config):
    file = os.path.join(engine.work, "config.json")
    with open(file, "w") as out:
        json.dump({"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 128, "num_hidden_layers": 6,
                   "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 50304, "max_position_embeddings": 2048,
                   "rotary_pct": 0.25, "rotary_emb_base": 10000, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
                   "use_parallel_residual": True, "tie_word_embeddings": False, "initializer_range": 0.02}, out)
    found, _ = table(engine, "--model", f"gpt_neox:pythia-14m,gpt_neox:{file}", "--ranks", "2", "--partitioners", "zero3")
    rows = found["rows"] + table(engine, config, "--ranks", "2", "--partitioners", "zero3", "--bookkeeping", "zero_paper")[0]["rows"]
    assert {row["parameters"] for row in rows} == {14067712} and len({row["bytes"] for row in rows}) == 1 and len(rows) == 3
    own = table(engine, config, "--ranks", "2")[0]["rows"][0]
    assert own["partitioner"] == "ddp" and own["bytes"] == 16 * 14067712, "a config's own, ddp in fp32, are 4 + 4 + 8 bytes a parameter"


@pytest.mark.parametrize("size", [14e6, 1e8, 1.3e9, 175e9])
def test_model_of_a_size(engine, size):
    shape = table(engine, "--params", str(size), "--ranks", "1", "--partitioners", "ddp")[0]["shapes"][0]
    assert abs(shape["parameters"] / size - 1) <= BOUND, shape
