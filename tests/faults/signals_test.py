"""SIGTERM saves, and a second signal stops at once, whatever made threads in the process that takes it.

A process of this run may have threads that libtorch, OpenMP, a transport or a dry run made, before anybody thought of signals; the
kernel gives a signal to any of them. So each run here is signalled once at its main thread and once at every other thread of the
process that started the ranks, and of a rank.
"""
import json
import os
import re
import signal
import time

import pytest
from engine import TINY_MODELS
from runs import Run, checkpoints

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BACKGROUND = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]  # as a shell without job control starts a command before an &


def native(*settings):
    return None, list(settings)


def deepspeed(**config):
    model, sizes = next(iter(TINY_MODELS.items()))
    settings = [f"model.plugin={model}", "model.seq_len=16", *(f"model.{key}={value}" for key, value in sizes.items())]
    return config, settings + ["train.steps=1000", "device=cpu", "memory_budget=4MB"]


# name: what makes threads; ranks; threads of OpenMP; the DeepSpeed config, if it is one, and settings
RUNS = {
    "an auto batch in fp16, found by dry runs": (2, 2, deepspeed(train_batch_size="auto", train_micro_batch_size_per_gpu="auto", fp16={"enabled": True},
                                                                 optimizer={"type": "Adam", "params": {"lr": 1e-3}}, zero_optimization={"stage": 1})),
    "fp16, a thread more": (2, 2, native("precision.plugin=fp16")),
    "gloo": (2, 1, native("communicator.plugin=gloo", "partitioner.plugin=zero3")),
    "shared memory, bf16, cpu offload": (2, 2, native("communicator.plugin=shm", "partitioner.plugin=zero3", "precision.plugin=bf16", "offload.optimizer.plugin=cpu")),
    "stages": (2, 2, native("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2")),
    "one process": (1, 2, native("precision.plugin=bf16", "offload.optimizer.plugin=cpu")),
}


def threads(process):
    return sorted(int(thread) for thread in os.listdir(f"/proc/{process}/task"))


def caught(process):
    """Whether the process has a handler for each signal, or takes it in some other way than dying or ignoring it."""
    with open(f"/proc/{process}/status") as file:
        mask = int(re.search(r"^SigCgt:\s*(\w+)", file.read(), re.M)[1], 16)
    return all(mask >> (number - 1) & 1 for number in CAUGHT)


WRITES = {"x86_64": ("1", "20"), "aarch64": ("64", "66")}[os.uname().machine]  # the numbers of write() and writev()


def is_writing(run):
    """Whether a thread of the run waits in a write to its metrics."""
    for process in run.ranks():
        for thread in threads(process):
            with open(f"/proc/{process}/task/{thread}/syscall") as file:
                call = file.read().split()
            if call[0] in WRITES and os.readlink(f"/proc/{process}/fd/{int(call[1], 16)}").endswith("/metrics"):
                return True
    return False


def wait_until_blocked(run):
    """Until the pipe of its metrics has no room, and rank 0 waits in a write to it."""
    deadline, seen = time.monotonic() + 60, 0
    while seen < 5:
        if time.monotonic() > deadline:
            raise AssertionError("the run writes no metrics")
        seen = seen + 1 if is_writing(run) else 0
        time.sleep(0.02)


FIRST_TWO = list(RUNS)[:2]


@pytest.fixture
def place(machine):
    """Where the run of a test saves."""
    return os.path.join(machine.new_folder(), "checkpoints")


@pytest.fixture
def start(machine, place, monkeypatch):
    """A function that starts one of RUNS and waits for its second step."""
    def started(name, prefix=()):
        ranks, omp, (config, settings) = RUNS[name]
        monkeypatch.setitem(machine.environment, "OMP_NUM_THREADS", str(omp))
        if config:
            path = os.path.join(machine.work, "ds_config.json")
            with open(path, "w") as file:
                json.dump(config, file)
            monkeypatch.setattr(machine, "config", path)
            settings = [*settings, f"data.path={os.path.join(machine.work, 'tokens.bin')}"]
        run = Run(machine, [*settings, f"checkpoint.path={place}"], ranks, prefix=prefix)
        assert run.wait_for_step(2), f"no second step: {run.output}"
        return run
    return started


def check_saves(run, place, thread):
    uncaught = [process for process in {run.process.pid, *run.ranks()} if not caught(process)]
    os.kill(thread, signal.SIGTERM)
    status = run.finish()
    assert status == 143 and len(checkpoints(place)) == 1 and "with --resume to continue" in run.output, f"{status} {checkpoints(place)} {run.output}"
    assert not uncaught, f"processes that do not catch {[number.name for number in CAUGHT]}"


@pytest.mark.parametrize("name", RUNS)
def test_last_thread_of_the_process_that_was_started(start, place, name):
    run = start(name)
    check_saves(run, place, threads(run.process.pid)[-1])


@pytest.mark.parametrize("name", FIRST_TWO)
def test_last_thread_of_a_rank(start, place, name):
    run = start(name)
    check_saves(run, place, threads(run.ranks()[-1])[-1])


@pytest.mark.parametrize("name, prefix", [*((name, ()) for name in FIRST_TWO), *((name, BACKGROUND) for name in (FIRST_TWO[0], "one process"))],
                         ids=lambda value: value if isinstance(value, str) else "in the background" if value else "in the foreground")
def test_two_signals(start, name, prefix):
    run = start(name, prefix)
    wait_until_blocked(run)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.8)  # its metrics are not read, so the step cannot end
    assert run.process.poll() is None, f"the first signal ended it: {run.output}"
    begin = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    status = run.process.wait(20)
    run.close()
    assert status in (130, -signal.SIGINT) and time.monotonic() - begin <= 5, run.output
