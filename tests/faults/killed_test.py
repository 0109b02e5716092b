"""Runs that are killed at a random moment (of --seed): a rank, or the process that started the ranks, and the point they resume from."""
import os
import random
import signal
import time

import pytest
from layouts import FEW, LAYOUTS, few_of
from runs import STEPS, checkpoints


@pytest.mark.parametrize("count", few_of(range(40), 3))
def test_killed(faults, seed, count):
    """At a random moment: a rank, or the process that started the ranks; then resumed from the last checkpoint."""
    layout, whole, draw = list(LAYOUTS)[count % len(LAYOUTS)], count % 4 == 3, random.Random(f"{seed} {count}")
    folder = faults.folder()
    every = "checkpoint.every=2"
    run = faults.start(layout, folder, [every])
    run.wait_for_step(draw.randrange(2, STEPS))
    deadline = time.monotonic() + draw.uniform(0, 0.03)
    while time.monotonic() < deadline:
        run.read_metrics(0.001)
    victim = run.process.pid if whole else draw.choice(run.ranks())
    os.kill(victim, signal.SIGKILL)
    after_kill(faults, layout, folder, every, run)


@pytest.mark.parametrize("count", few_of(range(10), 2))
def test_killed_while_saving(faults, seed, count):
    """As soon as the temporary folder of the second or a later checkpoint is there."""
    layout, draw = FEW[count % 2], random.Random(f"{seed} {count}")
    for _ in range(20):
        folder = faults.folder()
        every = "checkpoint.every=2"
        run = faults.start(layout, folder, [every])
        run.wait_for_step(draw.randrange(2, 12))
        delay = draw.uniform(0, 0.004)
        caught = wait_for_temporary(run, folder)
        time.sleep(delay)
        victim = draw.choice(run.ranks())
        caught = caught and any(name.endswith(".tmp") for name in os.listdir(folder))
        os.kill(victim, signal.SIGKILL)
        after_kill(faults, layout, folder, every, run)
        if caught:
            return
    raise AssertionError("no run could be killed in the middle of a save")


def wait_for_temporary(run, folder):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and run.process.poll() is None:
        if os.path.isdir(folder) and any(name.endswith(".tmp") for name in os.listdir(folder)):
            return True
        run.read_metrics(0)
    return False


def after_kill(faults, layout, folder, every, run):
    status = run.finish()
    assert status == 137, run.output
    saved = checkpoints(folder)
    first = faults.go_on(layout, folder, more=[every])
    assert first in ([0] if not saved else saved[-2:]), f"went on from {first}, and there were {saved}"
