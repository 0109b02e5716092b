"""`strata train --trace` and `strata trace`.

- The trace has every instruction of the traced steps, of every rank, one after the other, and the training's bits are those without it.
- `strata trace` finds the schedule in it, and its parts sum up to what was measured.
"""
import json
import os

import pytest
from commands import check_refused, run, told
from engine import TINY_MODELS, set_arguments, write_tokens

LAYOUTS = {
    "1 rank": (1, ["train.accumulation=2", "train.micro_batch=6"]),
    "2 stages x 2, zero3": (4, ["parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3", "train.micro_batch=2"]),
    "2 stages of 2 chunks, recomputation": (2, ["parallel.pipeline=2", "scheduler.plugin=zero_bubble_v", "activations.checkpoint=all",
                                               "train.micro_batch=3"]),
    "offload": (2, ["partitioner.plugin=zero3", "offload.parameters.plugin=cpu", "offload.optimizer.plugin=cpu", "train.micro_batch=2"]),
}


@pytest.fixture(scope="module")
def config(engine):
    tokens = os.path.join(engine.work, "train.bin")
    write_tokens(tokens, 4000)
    return engine.write_config("run.json", {
        "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 16, **TINY_MODELS["gpt_neox"]}, "data": {"path": tokens},
        "train": {"steps": 6, "global_batch": 12, "seed": 3}, "learning_rate": {"base": 1e-2},
        "communicator": {"timeout_s": 60}})


def train(engine, config, ranks, settings, *options):
    return run([engine.strata, "train", config, "--quiet", *(["--nproc", str(ranks), "--oversubscribe"] if ranks > 1 else []), *options,
                *set_arguments(settings)], env=engine.environment)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trace(engine, config, layout, tmp_path):
    ranks, settings = LAYOUTS[layout]
    file, plain, traced = (tmp_path / name for name in ("trace.json", "plain.jsonl", "traced.jsonl"))
    for metrics, options in (plain, []), (traced, ["--trace", file, "--trace-steps", "3"]):
        done = train(engine, config, ranks, settings, "--metrics", metrics, *options)
        assert done.returncode == 0, told(done)
    numbers = [[(step["loss"], step["grad_norm"]) for step in map(json.loads, path.read_text().splitlines())] for path in (plain, traced)]
    assert numbers[0] == numbers[1]

    events = json.loads(file.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(names) == ranks and len(set(names)) == ranks
    for rank in range(ranks):
        of_rank = [event for event in events if event["ph"] == "X" and event["pid"] == rank]
        for before, after in zip(of_rank, of_rank[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.002, (before, after)
        steps = {}
        for event in of_rank:
            assert event["dur"] >= 0
            if event["cat"] != "wait":
                steps.setdefault(event["args"]["step"], []).append(event["name"])
        assert list(steps) == [3, 4, 5]
        assert steps[3] == steps[4] == steps[5]
        assert {"Norm"} < set(steps[3])

    report = engine.call("trace", file, "--format", "json")
    assert [step["step"] for step in report["steps"]] == [3, 4, 5]
    for step in report["steps"]:
        parts = sum(step[key] for key in ("predicted_ms", "gathers_ms", "uneven_ms", "transfers_ms"))
        assert abs(parts - step["measured_ms"]) < 1e-3
        assert len(step["per_stage"]) == report["stages"]
        for stage in step["per_stage"]:
            assert 0 < stage["compute_ms"] <= step["measured_ms"]
    table = engine.run("trace", file)
    assert table.returncode == 0 and "= measured" in table.stdout
    assert engine.run("trace", file, "--format", "svg").stdout.count("<svg ") == 3


def test_schedules_of_the_config(engine, config):
    settings = set_arguments(["parallel.pipeline=2", "train.accumulation=4", "parallel.cut=layers"])
    found = engine.call("schedule", "show", "1f1b", "zero_bubble_v", "--config", config, "--ranks", "2", "--format", "json", *settings)
    assert [(one["scheduler"], one["chunks_per_stage"]) for one in found] == [("1f1b", 1), ("zero_bubble_v", 2)]
    for one in found:
        assert one["layers_of_chunk"][-1][1] == TINY_MODELS["gpt_neox"]["layers"] + 2
        assert all(stage["activation_bytes"] > 0 for stage in one["per_stage"])
    check_refused(engine.run("schedule", "show", "1f1b", "--config", config, *settings), "world size 1", "pipeline 2")
    check_refused(engine.run("schedule", "show"), "give one or several, or --config")


def test_short_run_is_traced_from_its_first_step(engine, config, tmp_path):
    file = tmp_path / "trace.json"
    done = train(engine, config, 1, ["train.steps=2", "train.micro_batch=12"], "--trace", file)
    assert done.returncode == 0, told(done)
    assert [step["step"] for step in engine.call("trace", file, "--format", "json")["steps"]] == [1, 2]


def test_refusals(engine, config, tmp_path):
    check_refused(train(engine, config, 1, ["train.micro_batch=12"], "--trace", tmp_path / "none" / "trace.json"), "cannot be written", "trace.json")
    assert "--trace-steps needs --trace" in train(engine, config, 1, [], "--trace-steps", "3").stderr
    check_refused(engine.run("trace", config), "is not a trace", "strata train --trace")
    check_refused(engine.run("trace", tmp_path / "none.json"), "none.json", "cannot be opened")
