"""Runs that are stopped by a signal or held up: what they leave, and that going on from it gives the uninterrupted run's bits."""
import os
import signal
import time

import pytest
from layouts import DDP, FEW, LAYOUTS, few_of
from runs import STEPS, Run, checkpoints

TWO_STAGES = few_of(("zero3, 2 stages", "zero3, 4 ranks, 2 stages, cpu offload"), 1)


@pytest.mark.parametrize("layout, number", [
    *(pytest.param(layout, signal.SIGINT, marks=[] if layout in FEW else pytest.mark.full) for layout in LAYOUTS),
    *(pytest.param(layout, signal.SIGTERM, marks=[] if layout == FEW[0] else pytest.mark.full) for layout in FEW)])
def test_stopped(faults, layout, number):
    """By a signal at step 7; then resumed."""
    folder = faults.folder()
    run = faults.start(layout, folder)
    assert run.wait_for_step(7), run.output
    run.process.send_signal(number)
    faults.expect(run, 128 + number, f"stopped by {signal.Signals(number).name} after step ", "with --resume to continue")
    done = run.summary["first_step"] - 1 + run.summary["steps"]
    assert 7 <= done < STEPS, run.output
    assert checkpoints(folder) == [done] and os.readlink(os.path.join(folder, "latest")) == f"step-{done}", f"{os.listdir(folder)}: {run.output}"
    assert run.summary["losses"] == faults.reference(layout).losses[:done], "a run with checkpoints has other losses than one without"
    assert faults.go_on(layout, folder) == done, "resumed from another step than it stopped at"


def test_stopped_one_rank_only(faults):
    """The signal reaches one of two ranks: both stop before the same step."""
    layout, folder = "ddp, 2 ranks", faults.folder()
    run = faults.start(layout, folder)
    assert run.wait_for_step(7), run.output
    os.kill(run.ranks()[1], signal.SIGTERM)
    status = run.finish()
    assert status == 143, run.output
    faults.go_on(layout, folder)


@pytest.mark.parametrize("layout", few_of(FEW, 1))
def test_stopped_twice(faults, layout):
    """The second signal does not wait for the step's end."""
    run = faults.start(layout, faults.folder())
    assert run.wait_for_step(3), run.output
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.8)  # its metrics are not read, so the step cannot end
    begin = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    status = run.process.wait(20)
    run.close()
    assert status in (130, -signal.SIGINT) and time.monotonic() - begin <= 5, run.output


def test_stopped_without_path(faults):
    run = Run(faults.machine, DDP, 1)
    assert run.wait_for_step(3), run.output
    run.process.send_signal(signal.SIGTERM)
    faults.expect(run, 143, "nothing is saved, because checkpoint.path is empty")


@pytest.mark.parametrize("layout, timeout, seconds", [
    ("zero3, 2 stages", 1, 4), pytest.param("zero3, 4 ranks, 2 stages, cpu offload", 1, 4, marks=pytest.mark.full),
    pytest.param("zero3, 2 stages", 120, 200, marks=pytest.mark.full)])
@pytest.mark.parametrize("communicator", ["shm", "gloo"])
def test_waited_for(faults, layout, communicator, timeout, seconds):
    """One rank, or stage, is held up for much longer than communicator.timeout_s, and is waited for."""
    more = [f"communicator.plugin={communicator}", f"communicator.timeout_s={timeout}"]
    run = faults.start(layout, faults.folder(), more)
    assert run.wait_for_step(3), run.output
    time.sleep(seconds)  # rank 0's metrics are not read, so it cannot go on
    faults.expect(run, 0, "; the wait continues" if seconds > 2 * timeout else "")
    assert run.summary["losses"] == faults.reference(layout).losses, "the losses are not those of a run that was not held up"


@pytest.mark.parametrize("layout", TWO_STAGES)
@pytest.mark.parametrize("communicator", ["shm", "gloo"])
def test_stopped_process(faults, layout, communicator):
    """A rank gets SIGSTOP, as at a breakpoint: told within 10 s as stopped, with what each rank was doing."""
    run = faults.start(layout, faults.folder(), [f"communicator.plugin={communicator}"])
    assert run.wait_for_step(3), run.output
    begin, rank = time.monotonic(), run.ranks()[1]
    os.kill(rank, signal.SIGSTOP)
    while "is stopped, not slow" not in run.output:
        assert time.monotonic() - begin <= 10, f"not told within 10 s: {run.output}"
        run.read_metrics()
    faults.expect(run, 3, "rank 1 is stopped, not slow", "What each rank was doing:")
    assert "stopping after" not in run.output, run.output
