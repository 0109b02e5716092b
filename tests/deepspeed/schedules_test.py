"""DeepSpeed's own schedule classes, driven as its engine drives them, compared with `strata config show --lr` of the ds_config: the rates of
drawn settings. Needs a Python with deepspeed and torch, and is skipped without; tests/unit/learning_rate/deepspeed_test.cpp has the formulas.
"""
import csv
import io
import random

import pytest

UPDATES = 60
RATE = 3e-4
SEEDS = range(8)


def drawn(name, seed):
    """Parameters of the schedule, some left out."""
    draw = random.Random(f"{name} {seed}")
    warmup = {"warmup_num_steps": draw.randint(1, 40), "warmup_type": draw.choice(["log", "linear"])}
    every = {
        "WarmupLR": {**warmup, "warmup_min_lr": draw.uniform(0, 1e-3), "warmup_max_lr": draw.uniform(0, 1e-2)},
        "WarmupDecayLR": {**warmup, "warmup_min_lr": draw.uniform(0, 1e-3), "warmup_max_lr": draw.uniform(0, 1e-2), "total_num_steps": UPDATES},
        "WarmupCosineLR": {**warmup, "warmup_min_ratio": draw.uniform(0, 1), "cos_min_ratio": draw.uniform(0, 1), "total_num_steps": UPDATES},
        "OneCycle": {"cycle_min_lr": draw.uniform(0, 1e-3), "cycle_max_lr": draw.uniform(0, 1e-2), "cycle_first_step_size": draw.randint(1, 30),
                     "cycle_second_step_size": draw.randint(1, 30), "cycle_first_stair_count": draw.randint(0, 4),
                     "cycle_second_stair_count": draw.randint(0, 4), "decay_step_size": draw.randint(0, 9), "decay_lr_rate": draw.uniform(0, 1),
                     "cycle_momentum": False},
        "LRRangeTest": {"lr_range_test_min_lr": draw.uniform(0, 1e-3), "lr_range_test_step_size": draw.randint(1, 30),
                        "lr_range_test_step_rate": draw.uniform(0, 2), "lr_range_test_staircase": draw.choice([True, False])},
    }[name]
    needed = {"total_num_steps", "cycle_min_lr", "cycle_max_lr", "cycle_momentum"}
    return {key: value for key, value in every.items() if key in needed or draw.random() < 0.7}


def used_rates(name, parameters):
    """What the optimizer has in each update: the schedule is created, and stepped after each."""
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = getattr(schedules, name)(optimizer, **parameters)
    rates = []
    for _ in range(UPDATES):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return rates


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"])
def test_rates_are_those_of_the_class(engine, tokens, name, seed):
    parameters = drawn(name, seed)
    expected = used_rates(name, parameters)
    config = engine.write_config("ds_config.json", {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": RATE}},
                                                    "scheduler": {"type": name, "params": parameters}})
    done = engine.run("config", "show", config, "--model", "gpt_neox:pythia-14m", "--data", tokens, "--lr", "--format", "csv",
                      "--set", f"train.steps={UPDATES}")
    assert done.returncode == 0, done.stderr
    rates = [float(row["learning_rate"]) for row in csv.DictReader(io.StringIO(done.stdout))]
    assert rates == pytest.approx(expected, rel=1e-9, abs=1e-15), parameters
