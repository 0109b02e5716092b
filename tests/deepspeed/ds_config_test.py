"""Every ds_config.json of configs/ beside this file (or of the folder STRATA_DS_CONFIGS) as it is on two ranks with a tiny model. Beside each lies
the same run written for Strata by hand: every setting and every loss must be equal. Its translation must train alike.

The tiny model's sizes, the sample length and the number of steps come by --set; where the file leaves the batch "auto", memory_budget
is small, so that the micro-batch is smaller than the batch, and the next larger part of it must not fit.
"""
import glob
import json
import math
import os
import re
import tempfile
import time

import engine as engines
import pytest
from commands import run as run_command
from commands import told

CONFIGS = os.environ.get("STRATA_DS_CONFIGS", os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs"))
FILES = sorted(glob.glob(os.path.join(glob.escape(CONFIGS), "*.json")))
TINY = [f"model.{key}={value}" for key, value in engines.TINY_MODELS["gpt_neox"].items()] + ["model.seq_len=16", "train.steps=4", "device=cpu"]
BUDGET = "memory_budget=1250KB"
THIRD_STEP_LIMIT = 120  # seconds


def strata(run, *words):
    return run.run(*words, timeout=180)


def train(run, tokens, config, extra=()):
    """The ended command and its losses by step."""
    metrics = os.path.join(tempfile.mkdtemp(dir=run.work), "metrics.jsonl")
    done = strata(run, "train", "--config", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--metrics", metrics,
                  *engines.set_arguments(TINY + list(extra)))
    losses = []
    if done.returncode == 0:
        with open(metrics) as file:
            losses = [json.loads(line)["loss"] for line in file]
    return done, losses


class Trained:
    """A file, as it was trained."""

    def __init__(self, run, tokens, path):
        self.path, self.name = path, os.path.basename(path)
        with open(path) as file:
            self.text = re.sub(r"//.*", "", file.read())
        self.written = json.loads(self.text)
        self.done, self.losses = train(run, tokens, path, [BUDGET] if self.leaves_the_batch() else [])
        said = re.search(r"train\.micro_batch = (\d+); \"auto\" is 8 samples per device.*the largest divisor that fits", self.done.stderr)
        self.chosen = int(said[1]) if said else None
        self.known = None  # settings_by_hand

    @property
    def by_hand(self):
        written = self.path.removesuffix(".json") + ".yaml"
        if not os.path.exists(written) and "STRATA_DS_CONFIGS" in os.environ:
            pytest.skip(f"there is no {written}")
        return written

    def settings_by_hand(self, run, tokens):
        if self.known is None:
            self.known = settings_of(run, tokens, self.by_hand, self.batch())
        return self.known

    def batch(self):
        """The part of an "auto" batch that fits, for a config that names one."""
        return batch_of(self.chosen) if self.chosen else []

    def leaves_the_batch(self):
        written = self.written
        return written.get("train_batch_size") == written.get("train_micro_batch_size_per_gpu") == "auto" and "pipeline" not in written


@pytest.fixture(scope="module", params=FILES, ids=os.path.basename)
def trained(request, engine, tokens):
    return Trained(engine, tokens, request.param)


def test_there_are_files():
    assert FILES, f"{CONFIGS} holds no ds_config file"


def settings_of(run, tokens, config, extra):
    """Every setting of a run but what its files are called."""
    rows = run.call("config", "show", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--format", "json",
                    *engines.set_arguments(TINY + extra))
    return {row["key"]: row["value"] for row in rows}


def test_file_trains_as_written_by_hand(trained, engine, tokens):
    assert trained.done.returncode == 0, told(trained.done)
    assert len(set(trained.losses)) == 4, trained.losses
    assert settings_of(engine, tokens, trained.path, trained.batch()) == trained.settings_by_hand(engine, tokens)
    done, losses = train(engine, tokens, trained.by_hand, trained.batch())
    assert done.returncode == 0 and losses == trained.losses, f"{losses} {trained.losses} {told(done)}"


@pytest.mark.full
@pytest.mark.parametrize("change", ["optimizer.weight_decay=0.01", "train.seed=8"])
def test_losses_see_a_changed_setting(trained, engine, tokens, change):
    done, losses = train(engine, tokens, trained.by_hand, trained.batch() + [change])
    assert done.returncode == 0 and len(losses) == 4 and losses != trained.losses, f"{losses} {told(done)}"


def test_every_key_has_a_line(trained):
    stderr = trained.done.stderr
    for block, keys in trained.written.items():
        for key in [f"{block}.{key}" for key in keys] if isinstance(keys, dict) else [block]:
            key = key.replace("zero.", "zero_optimization.")
            lines = [line for line in stderr.splitlines() if any(f": {word}" in line for word in (f"{key} ", f"{key}.", f"{block} {{...}}:"))]
            assert lines, f"no line for {key}: {stderr}"


def test_auto_batch_is_the_largest_that_fits(trained, engine, tokens):
    if trained.chosen is None:
        assert not trained.leaves_the_batch(), f"no line says which batch was chosen and why: {trained.done.stderr}"
        return
    budget = int(re.search(r"(\d+)KB", BUDGET).group(1)) * 10**3

    def takes(micro_batch):
        done = strata(engine, "plan", trained.path, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--format", "json",
                      *engines.set_arguments(TINY + batch_of(micro_batch)))
        assert done.returncode == 0, told(done)
        ranks = json.loads(done.stdout)["ranks"]
        return max(rank["total"] + sum(rank["peak_bytes"].get("host", {}).values()) for rank in ranks)

    assert trained.chosen < 8, "the whole batch fits"
    assert takes(trained.chosen) <= budget
    assert takes(2 * trained.chosen) > budget, f"{2 * trained.chosen} samples fit too"


def batch_of(micro_batch):
    return [f"train.micro_batch={micro_batch}", f"train.accumulation={8 // micro_batch}"]


def converted(trained, engine, extension):
    output = os.path.join(engine.work, f"{trained.name}.converted.{extension}")
    done = strata(engine, "config", "convert", trained.path, "--model", "gpt_neox", "-o", output, *engines.set_arguments(TINY))
    assert done.returncode == 0, told(done)
    return output


def test_converted_file_has_the_settings(trained, engine, tokens):
    output = converted(trained, engine, "yaml")
    assert settings_of(engine, tokens, output, trained.batch()) == trained.settings_by_hand(engine, tokens)


@pytest.mark.full
@pytest.mark.parametrize("extension", ["yaml", "toml", "json"])
def test_converted_file_trains_alike(trained, engine, tokens, extension):
    again, same = train(engine, tokens, converted(trained, engine, extension), trained.batch())
    assert again.returncode == 0 and same == trained.losses, f"{same} {trained.losses} {told(again)}"


def test_memory_changes_nothing(engine, tokens):
    """An "auto" batch at two budgets: other micro-batches, the same losses and weights but for the order of sums."""
    config = engine.write_config("auto.json", {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2},
                                               "optimizer": {"type": "SGD", "params": {"lr": 0.5}}})
    settings = TINY + ["model.plugin=gpt_neox", f"data.path={tokens}"]
    budgets = ["memory_budget=2GB", BUDGET]
    results = [engine.train(config, 2, settings + [budget], with_weights=True) for budget in budgets]
    assert all(result.status == 0 for result in results), [result.output for result in results]
    whole, parts = results
    shown = [engine.call("config", "show", config, "--nproc", "2", "--format", "json", *engines.set_arguments(settings + [budget])) for budget in budgets]
    values = [{row["key"]: row["value"] for row in rows} for rows in shown]
    assert values[0]["train.micro_batch"] == "8" and values[1]["train.micro_batch"] in ("1", "2", "4")
    assert values[0]["train.global_batch"] == values[1]["train.global_batch"] == "16"
    assert all(abs(a - b) <= 2e-6 * a for a, b in zip(whole.losses, parts.losses)), [whole.losses, parts.losses]
    largest = max(abs(a - b) for name in whole.weights for a, b in zip(whole.weights[name], parts.weights[name]))
    assert largest <= 1e-6


@pytest.mark.parametrize("text, expected", [
    ('{"train_batch_size": 4, "zero_optimization": {"stag": 1}}', "did you mean stage?"),
    ('{"train_batch_size": 4, "amp": {"enabled": true}}', "amp: {...} is refused"),
    ('{"train_batch_size": 4, "gradient_cliping": 1}', "did you mean gradient_clipping? DeepSpeed ignores it; --allow"),
    ('{"train_batch_size": "auto"}', "a micro-batch of one sample needs"),
    ('{"train_batch_size": 4,}', "not valid JSON")])
def test_refused(engine, tokens, text, expected):
    """One line, nothing started."""
    config = os.path.join(engine.work, "refused.json")
    with open(config, "w") as file:
        file.write(text)
    done, _ = train(engine, tokens, config, ["memory_budget=1MiB"])
    assert done.returncode in (1, 2), told(done)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and expected in lines[0], told(done)


@pytest.mark.parametrize("words, runs", [([], False), (["--allow", "wandb"], False), (["--allow", "wandb", "--allow", "tensorboard", "--quiet"], True)])
def test_allowed(engine, tokens, words, runs):
    config = os.path.join(engine.work, "allowed.json")
    with open(config, "w") as file:
        file.write('{"train_batch_size": 4, "wandb": {"enabled": true}, "tensorboard": {"enabled": true}}')
    done = strata(engine, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", *words, *engines.set_arguments(TINY))
    assert (done.returncode == 0) == runs, told(done)
    assert not runs or "wandb" not in done.stdout + done.stderr, f"--quiet speaks of keys: {told(done)}"


def test_csv_monitor(engine, tokens):
    """The files that DeepSpeed writes, with its names, headings and count of samples; a resumed run goes on in them."""
    config, logs = os.path.join(engine.work, "csv.json"), os.path.join(engine.work, "logs")
    with open(config, "w") as file:
        json.dump({"train_batch_size": 4, "csv_monitor": {"enabled": True, "output_path": logs, "job_name": "job"}}, file)
    checkpoints = os.path.join(engine.work, "csv_checkpoints")
    for steps, words in [(2, []), (3, ["--resume"])]:
        settings = TINY + [f"train.steps={steps}", f"checkpoint.path={checkpoints}"]
        metrics = os.path.join(engine.work, f"csv_{steps}.jsonl")
        done = strata(engine, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--metrics", metrics, *words,
                      *engines.set_arguments(settings))
        assert done.returncode == 0, told(done)
    with open(os.path.join(logs, "job", "Train_Samples_train_loss.csv")) as file:
        lines = file.read().splitlines()
    assert lines[:1] == ["step,train_loss"] and len(lines) == 4
    assert [line.split(",")[0] for line in lines[1:]] == ["4", "8", "12"], "steps count samples"
    with open(metrics) as file:
        loss = json.loads(file.read().splitlines()[-1])["loss"]
    assert float(lines[-1].split(",")[1]) == loss
    with open(os.path.join(logs, "job", "Train_Samples_lr.csv")) as file:
        assert file.readline() == "step,lr\n"
    settings = TINY + ["train.steps=4", f"checkpoint.path={checkpoints}", f"metrics.csv={logs}_moved"]
    done = strata(engine, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--resume", *engines.set_arguments(settings))
    warnings = [line for line in done.stderr.splitlines() if "differs from the saved one" in line]
    assert done.returncode == 0 and len(warnings) == 1 and "train.steps: 3 -> 4" in warnings[0], told(done)
    assert "metrics.csv" not in "".join(warnings), "files elsewhere are no other run"


@pytest.mark.third_step
@pytest.mark.parametrize("path", [pytest.param(path, marks=[] if path.endswith("hugging_face_auto.json") else pytest.mark.full) for path in FILES],
                         ids=os.path.basename)
def test_third_step_of_pythia_14m(engine, tokens, path):
    begin = time.monotonic()
    metrics = os.path.join(tempfile.mkdtemp(dir=engine.work), "metrics.jsonl")
    done = run_command([engine.strata, "train", path, "--model", "gpt_neox:pythia-14m", "--data", tokens, "--nproc", "2", "--metrics", metrics,
                        "--set", "train.steps=3"], env=engine.environment, timeout=THIRD_STEP_LIMIT)
    assert done.returncode == 0, told(done)
    print(f"{time.monotonic() - begin:.0f} s")
    with open(metrics) as file:
        losses = [json.loads(line)["loss"] for line in file]
    assert len(losses) == 3 and all(map(math.isfinite, losses)), losses
