#!/usr/bin/env python3
"""Runs every ds_config.json of a folder, configs/ beside this test or another, as it is on two ranks with a tiny model, and its translation, which must train alike.

The tiny model's sizes, the sample length and the number of steps come by --set; where the file leaves the batch "auto", memory_budget
is small, so that the micro-batch is smaller than the batch, and the next larger part of it must not fit.

With --third-step the files, or those that are named, run as they are on pythia-14m instead, and each must end its third step in time.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import engine  # noqa: E402

TINY = [f"model.{key}={value}" for key, value in engine.TINY_MODELS["gpt_neox"].items()] + ["model.seq_len=16", "train.steps=4", "device=cpu"]
BUDGET = "memory_budget=1250KB"


class Checks:
    def __init__(self):
        self.failed = self.passed = 0

    def check(self, what, holds, detail=""):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            print(f"FAILED: {what}: {detail}", flush=True)


def strata(run, *words):
    return subprocess.run([run.strata, *words], env=run.environment, capture_output=True, text=True, timeout=180)


def train(run, tokens, config, extra=()):
    """Status, losses by step, and what was said."""
    metrics = os.path.join(run.work, "metrics.jsonl")
    done = strata(run, "train", "--config", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--metrics", metrics,
                  *engine.set_arguments(TINY + list(extra)))
    losses = []
    if done.returncode == 0:
        with open(metrics) as file:
            losses = [json.loads(line)["loss"] for line in file]
    return done, losses


def test_file(checks, run, tokens, path):
    name = os.path.basename(path)
    with open(path) as file:
        text = re.sub(r"//.*", "", file.read())
    written = json.loads(text)
    done, losses = train(run, tokens, path, [BUDGET])
    checks.check(f"{name} runs", done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:])
    checks.check(f"{name}: four finite losses", len(losses) == 4 and all(loss == loss and loss < 20 for loss in losses), losses)
    for block, keys in written.items():
        for key in [f"{block}.{key}" for key in keys] if isinstance(keys, dict) else [block]:
            told = key.replace("zero.", "zero_optimization.")
            lines = [line for line in done.stderr.splitlines() if any(f": {word}" in line for word in (f"{told} ", f"{told}.", f"{block} {{...}}:"))]
            checks.check(f"{name}: a line for {told}", lines, done.stderr)
    said = re.search(r"train\.micro_batch = (\d+); \"auto\" is 8 samples a device.*the largest part of them that fits", done.stderr)
    if said:
        test_largest(checks, run, tokens, path, int(said.group(1)))
    elif written.get("train_batch_size") == written.get("train_micro_batch_size_per_gpu") == "auto" and "pipeline" not in written:
        checks.check(f"{name}: the batch that was chosen, and why", False, done.stderr)
    test_converted(checks, run, tokens, path, losses, said)


def test_largest(checks, run, tokens, path, chosen):
    name = os.path.basename(path)
    budget = int(re.search(r"(\d+)KB", BUDGET).group(1)) * 10**3

    def takes(micro_batch):
        done = strata(run, "plan", path, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--format", "json",
                      *engine.set_arguments(TINY + batch_of(micro_batch)))
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(done.args)}: exit status {done.returncode}: {done.stderr}")
        ranks = json.loads(done.stdout)["ranks"]
        return max(rank["total"] + sum(rank["peak_bytes"].get("host", {}).values()) for rank in ranks)

    checks.check(f"{name}: {chosen} samples fit", takes(chosen) <= budget, takes(chosen))
    checks.check(f"{name}: less than the whole batch", chosen < 8, chosen)
    checks.check(f"{name}: {2 * chosen} samples do not fit", takes(2 * chosen) > budget, takes(2 * chosen))


def batch_of(micro_batch):
    return [f"train.micro_batch={micro_batch}", f"train.accumulation={8 // micro_batch}"]


def test_memory_changes_nothing(checks, run, tokens):
    """An "auto" batch at two budgets: other micro-batches, the same losses and weights but for the order of sums."""
    config = run.write_config("auto.json", {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2},
                                            "optimizer": {"type": "SGD", "params": {"lr": 0.5}}})
    settings = TINY + ["model.plugin=gpt_neox", f"data.path={tokens}"]
    budgets = ["memory_budget=2GB", BUDGET]
    results = [run.train(config, 2, settings + [budget], with_weights=True) for budget in budgets]
    checks.check("an auto batch trains at both budgets", all(result.status == 0 for result in results), [result.output for result in results])
    if not all(result.status == 0 for result in results):
        return
    whole, parts = results
    shown = [run.call("config", "show", config, "--nproc", "2", "--format", "json", *engine.set_arguments(settings + [budget])) for budget in budgets]
    values = [{row["key"]: row["value"] for row in rows} for rows in shown]
    checks.check("other micro-batches", values[0]["train.micro_batch"] == "8" and values[1]["train.micro_batch"] in ("1", "2", "4"), values)
    checks.check("the same global batch", values[0]["train.global_batch"] == values[1]["train.global_batch"] == "16", values)
    checks.check("equal losses", all(abs(a - b) <= 2e-6 * a for a, b in zip(whole.losses, parts.losses)), [whole.losses, parts.losses])
    largest = max(abs(a - b) for name in whole.weights for a, b in zip(whole.weights[name], parts.weights[name]))
    checks.check("equal weights", largest <= 1e-6, largest)


def test_converted(checks, run, tokens, path, losses, said):
    name = os.path.basename(path)
    for extension in ("yaml", "toml", "json"):
        output = os.path.join(run.work, f"{name}.converted.{extension}")
        done = strata(run, "config", "convert", path, "--model", "gpt_neox", "-o", output)
        checks.check(f"{name}: converts to {extension}", done.returncode == 0, done.stderr)
        settings = batch_of(int(said.group(1))) if said else []
        if done.returncode != 0:
            continue
        with open(path) as file:
            if '"auto"' in file.read() and not said and "pipeline" not in name:
                continue  # sizes by the model's width, which convert does not know
        again, same = train(run, tokens, output, settings)
        checks.check(f"{name}: {extension} trains alike", again.returncode == 0 and same == losses, f"{same} {losses} {again.stderr[-800:]}")


def test_refusals(checks, run, tokens):
    """One line, nothing started."""
    for text, expected in [('{"train_batch_size": 4, "zero_optimization": {"stag": 1}}', "did you mean stage?"),
                           ('{"train_batch_size": 4, "amp": {"enabled": true}}', "amp: \"{...}\" is refused"),
                           ('{"train_batch_size": 4, "gradient_cliping": 1}', "did you mean gradient_clipping? DeepSpeed ignores it; --allow"),
                           ('{"train_batch_size": "auto"}', "a micro-batch of one sample takes"),
                           ('{"train_batch_size": 4,}', "not valid JSON")]:
        config = os.path.join(run.work, "refused.json")
        with open(config, "w") as file:
            file.write(text)
        done, _ = train(run, tokens, config, ["memory_budget=1MiB"])
        lines = done.stderr.strip().splitlines()
        checks.check(f"{text} is refused", done.returncode == 2 or done.returncode == 1, f"{done.returncode} {done.stderr}")
        checks.check(f"{text}: one line that says why", len(lines) == 1 and expected in lines[0], done.stderr)


def test_allowed(checks, run, tokens):
    config = os.path.join(run.work, "allowed.json")
    with open(config, "w") as file:
        file.write('{"train_batch_size": 4, "wandb": {"enabled": true}, "tensorboard": {"enabled": true}}')
    for words, runs in [([], False), (["--allow", "wandb"], False), (["--allow", "wandb", "--allow", "tensorboard", "--quiet"], True)]:
        done = strata(run, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", *words, *engine.set_arguments(TINY))
        checks.check(f"{words} {'runs' if runs else 'is refused'}", (done.returncode == 0) == runs, done.stderr)
    checks.check("--quiet says nothing of keys", "wandb" not in done.stdout + done.stderr, done.stderr)


def test_csv_monitor(checks, run, tokens):
    """The files that DeepSpeed writes, with its names, headings and count of samples; a resumed run goes on in them."""
    config, logs = os.path.join(run.work, "csv.json"), os.path.join(run.work, "logs")
    with open(config, "w") as file:
        json.dump({"train_batch_size": 4, "csv_monitor": {"enabled": True, "output_path": logs, "job_name": "job"}}, file)
    checkpoints = os.path.join(run.work, "csv_checkpoints")
    shutil.rmtree(checkpoints, ignore_errors=True)
    for steps, words in [(2, []), (3, ["--resume"])]:
        settings = TINY + [f"train.steps={steps}", f"checkpoint.path={checkpoints}"]
        metrics = os.path.join(run.work, f"csv_{steps}.jsonl")
        done = strata(run, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--metrics", metrics, *words,
                      *engine.set_arguments(settings))
        checks.check(f"csv_monitor: {steps} steps train", done.returncode == 0, done.stderr)
    with open(os.path.join(logs, "job", "Train_Samples_train_loss.csv")) as file:
        lines = file.read().splitlines()
    checks.check("csv_monitor: a heading and three steps", lines[:1] == ["step,train_loss"] and len(lines) == 4, str(lines))
    checks.check("csv_monitor: steps count samples", [line.split(",")[0] for line in lines[1:]] == ["4", "8", "12"], str(lines))
    with open(metrics) as file:
        loss = json.loads(file.read().splitlines()[-1])["loss"]
    checks.check("csv_monitor: the loss of --metrics", float(lines[-1].split(",")[1]) == loss, f"{lines[-1]} {loss}")
    with open(os.path.join(logs, "job", "Train_Samples_lr.csv")) as file:
        checks.check("csv_monitor: the learning rate's file", file.readline() == "step,lr\n")
    settings = TINY + ["train.steps=4", f"checkpoint.path={checkpoints}", f"metrics.csv={logs}_moved", "memory_budget=1GB"]
    done = strata(run, "train", config, "--model", "gpt_neox", "--data", tokens, "--nproc", "2", "--resume", *engine.set_arguments(settings))
    told = [line for line in done.stderr.splitlines() if "differs from the one that was saved" in line]
    checks.check("csv_monitor: a longer run is told", done.returncode == 0 and len(told) == 1 and "train.steps: 3 -> 4" in told[0], done.stderr)
    checks.check("csv_monitor: files elsewhere are no other run", not re.search(r"metrics\.csv|memory_budget", "".join(told)), told)


def test_third_step(checks, run, tokens, path, limit):
    name = os.path.basename(path)
    begin = time.monotonic()
    metrics = os.path.join(run.work, "metrics.jsonl")
    words = [run.strata, "train", path, "--model", "gpt_neox:pythia-14m", "--data", tokens, "--nproc", "2", "--metrics", metrics, "--set", "train.steps=3"]
    try:
        done = subprocess.run(words, env=run.environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return checks.check(f"{name}: three steps within {limit} s", False)
    losses = []
    if done.returncode == 0:
        with open(metrics) as file:
            losses = [json.loads(line)["loss"] for line in file]
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    checks.check(f"{name}: three finite losses", len(losses) == 3 and all(0 < loss < 20 for loss in losses), done.stderr[-1500:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--plugins", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--configs", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs"), metavar="DIR",
                        help="the folder of ds_config files; else configs/ beside this test")
    parser.add_argument("--third-step", nargs="*", metavar="FILE", help="three steps of pythia-14m, of all files or these")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="seconds that the three steps may take (default: 120)")
    arguments = parser.parse_args()
    run = engine.Engine(arguments.strata, [arguments.plugins], arguments.work)
    tokens = os.path.join(run.work, "train.bin")
    engine.write_tokens(tokens)
    checks = Checks()
    files = sorted(glob.glob(os.path.join(glob.escape(arguments.configs), "*.json")))
    if arguments.third_step is not None:
        files = [path for path in files if not arguments.third_step or os.path.basename(path) in arguments.third_step]
        for path in files:
            test_third_step(checks, run, tokens, path, arguments.limit)
        print(f"{checks.passed} checks passed, {checks.failed} failed; {len(files)} ds_config files on pythia-14m")
        return 1 if checks.failed or not files else 0
    for path in files:
        test_file(checks, run, tokens, path)
    test_memory_changes_nothing(checks, run, tokens)
    test_refusals(checks, run, tokens)
    test_allowed(checks, run, tokens)
    test_csv_monitor(checks, run, tokens)
    print(f"{checks.passed} checks passed, {checks.failed} failed; {len(files)} ds_config files on two ranks")
    return 1 if checks.failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
