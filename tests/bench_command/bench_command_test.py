"""`strata bench` of every plugin that was built, with tiny sizes and few repetitions.

Each report has the rows of its kind, with positive finite figures and an interval around each ratio; nothing is asked of how long anything
takes. A plugin that cannot be used here is refused with the reason that `strata doctor` gives. Every format holds the same rows, and wrong
uses are refused.
"""
import csv
import io
import json
import math
import tempfile

import pytest
from commands import told
from place import usable_plugins

# By kind: sizes, and its rows (of a model what their names begin with).
SIZES = {"device": ["4096"], "communicator": ["4096"], "partitioner": ["4096"], "precision": ["16"], "scheduler": ["8"], "offload": ["4096"],
         "optimizer": ["4096"], "model": ["8"], "data": ["8"]}
ROWS = {"device": ["copy to a host buffer", "copy from a host buffer"],
        "communicator": ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "send and receive"],
        "partitioner": ["a step's gathers and reductions"],
        "precision": ["linear, forward", "linear, forward and backward"],
        "scheduler": ["bubble", "place and order of all stages"],
        "offload": ["write", "read"],
        "optimizer": ["step, fp32", "step, fp32 master and bf16 copy"],
        "model": ["block", "head"],
        "data": ["samples read"]}
TINY_SIZES = ["hidden_size=16", "layers=3", "heads=2", "intermediate_size=32", "vocabulary=64"]
SETTINGS = {"offload/nvme": [f"path={tempfile.gettempdir()}"], **{f"model/{family}": TINY_SIZES for family in ("gpt_neox", "gpt2", "llama")}}
ROUNDS = 8


def bench(engine, plugin, *arguments):
    command = ["bench", plugin, "--rounds", str(ROUNDS), "--seconds", "1e-5", "--threads", "1"]
    for size in SIZES[plugin.split("/")[0]]:
        command += ["--size", size]
    for setting in SETTINGS.get(plugin, []):
        command += ["--set", setting]
    return engine.run(*command, *arguments, timeout=300)


def pytest_generate_tests(metafunc):
    if "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", measured_plugins())


def measured_plugins():
    """A learning rate takes a few operations per update."""
    return [name for name in usable_plugins() if not name.startswith("learning_rate/")]


def test_every_kind_has_plugins():
    assert {name.split("/")[0] for name in measured_plugins()} == set(ROWS)


def test_a_learning_rate_is_not_measured(engine):
    done = engine.run("bench", "learning_rate/cosine")
    assert done.returncode == 2 and "learning_rate/cosine: bench does not measure learning rates" in done.stderr


def test_report(engine, plugin):
    done = bench(engine, plugin, "--format", "json")
    if done.returncode == 3 and "cannot be measured here: " in done.stderr:
        reason = done.stderr.split("cannot be measured here: ", 1)[1].strip()
        assert reason and reason in engine.run("doctor", timeout=300).stdout, f"`strata doctor` does not say {reason}"
        return
    assert done.returncode == 0, told(done)
    report = json.loads(done.stdout)
    kind = plugin.split("/")[0]
    assert report["plugin"] == plugin and report["rounds"] == ROUNDS
    assert report["ranks"] == (2 if kind in ("communicator", "partitioner") else 1)
    names = [row["case"] for row in report["rows"]]
    for name in ROWS[kind]:
        assert any(found == name or (kind == "model" and found.startswith(name)) for found in names), f"no row {name} in {names}"
    for row in report["rows"]:
        count = 1 if row["unit"] == "share" else ROUNDS
        figures = [row[key] for key in ("median", "least", "most", "floor_median", "ratio", "ratio_low", "ratio_high")] + row["values"] + row["floor_values"]
        assert all(isinstance(figure, (int, float)) and math.isfinite(figure) and figure > 0 for figure in figures), row
        assert len(row["values"]) == count and len(row["floor_values"]) == count, row
        assert row["least"] <= row["median"] <= row["most"] and row["ratio_low"] <= row["ratio"] <= row["ratio_high"], row
        assert row["floor"] and row["size"], row


def test_formats(engine):
    plugin = "scheduler/1f1b"
    rows = json.loads(bench(engine, plugin, "--format", "json").stdout)["rows"]
    table = list(csv.DictReader(io.StringIO(bench(engine, plugin, "--format", "csv").stdout)))
    assert [row["case"] for row in table] == [row["case"] for row in rows]
    assert set(table[0]) == {"case", "size", "median", "least..most", "rate", "floor", "floor's median", "ratio"}
    text, markdown = bench(engine, plugin).stdout, bench(engine, plugin, "--format", "markdown").stdout
    for row in rows:
        assert row["case"] in text and f"| {row['case']} " in markdown
    assert "99 % interval" in text and "1 thread," in text, "the table does not say how it was measured"


def test_sequence_longer_than_the_model_takes(engine):
    done = bench(engine, "model/gpt_neox", "--size", "1MiB")
    assert done.returncode == 2 and "tokens per sample" in done.stderr, told(done)


@pytest.mark.parametrize("words, arguments", [
    ("give KIND/NAME", ["adamw"]), ("did you mean optimizer?", ["optimiser/adamw"]), ("optimizer/nothing", ["optimizer/nothing"]),
    ("has no such option", ["optimizer/adamw", "--set", "betass=1"]), ("OPTION=VALUE", ["optimizer/adamw", "--set", "betas"]),
    ("--rounds", ["optimizer/adamw", "--rounds", "2"]), ("preset", ["model/gpt_neox"]),
    ("micro-batches", ["scheduler/1f1b", "--size", "1GiB"]), ("absolute path", ["./libmine.so"])])
def test_refused(engine, words, arguments):
    done = engine.run("bench", *arguments, timeout=300)
    assert done.returncode == 2 and words in done.stderr, told(done)
