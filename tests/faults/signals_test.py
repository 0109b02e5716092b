#!/usr/bin/env python3
"""SIGTERM saves, and a second signal stops at once, whatever made threads in the process that takes it.

A process of this run may have threads that libtorch, OpenMP, a transport or a dry run made, before anybody thought of signals; the
kernel gives a signal to any of them. So each run here is signalled once at its main thread and once at every other thread of the
process that started the ranks, and of a rank.

signals.py --strata PATH --plugins DIR [--work DIR] [--only NAME]
"""
import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time

from runs import Machine, Run, checkpoints
from engine import TINY_MODELS
from traces import Traces

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


class Signals:
    def __init__(self, options):
        self.options, self.machine = options, Machine(options.strata, options.plugins, options.work)
        self.runs = []
        self.tokens = os.path.join(self.machine.work, "tokens.bin")

    def start(self, name, prefix=()):
        ranks, omp, (config, settings) = RUNS[name]
        native_config, self.folder = self.machine.config, os.path.join(self.machine.new_folder(), "checkpoints")
        self.machine.environment["OMP_NUM_THREADS"] = str(omp)
        if config:
            self.machine.config = os.path.join(self.machine.work, "ds_config.json")
            with open(self.machine.config, "w") as file:
                json.dump(config, file)
            settings = [*settings, f"data.path={self.tokens}"]
        run = Run(self.machine, [*settings, f"checkpoint.path={self.folder}"], ranks, prefix=prefix)
        self.machine.config = native_config
        self.runs.append(run)
        if not run.wait_for_step(2):
            raise AssertionError(f"no second step: {run.output}")
        return run

    def saves(self, name, choose):
        run = self.start(name)
        uncaught = [process for process in {run.process.pid, *run.ranks()} if not caught(process)]
        os.kill(choose(run), signal.SIGTERM)
        status = run.finish()
        if status != 143 or len(checkpoints(self.folder)) != 1 or "--resume goes on from there" not in run.output:
            raise AssertionError(f"exit status {status}, checkpoints {checkpoints(self.folder)}: {run.output}")
        if uncaught:
            raise AssertionError(f"{len(uncaught)} of the run's processes do not catch {[number.name for number in CAUGHT]}")

    def stops_twice(self, name, prefix):
        run = self.start(name, prefix)
        wait_until_blocked(run)
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.8)  # its metrics are not read, so the step cannot end
        if run.process.poll() is not None:
            raise AssertionError(f"the first signal ended it: {run.output}")
        begin = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        status = run.process.wait(20)
        run.close()
        if status not in (130, -signal.SIGINT) or time.monotonic() - begin > 5:
            raise AssertionError(f"exit status {status} after {time.monotonic() - begin:.1f} s: {run.output}")

    def tests(self):
        for name in RUNS:
            yield f"the last thread of the process that was started: {name}", lambda name=name: self.saves(name, lambda run: threads(run.process.pid)[-1])
        for name in list(RUNS)[:2]:
            yield f"the last thread of a rank: {name}", lambda name=name: self.saves(name, lambda run: threads(run.ranks()[-1])[-1])
            yield f"two signals: {name}", lambda name=name: self.stops_twice(name, ())
        for name in (list(RUNS)[0], "one process"):
            yield f"two signals, in the background: {name}", lambda name=name: self.stops_twice(name, BACKGROUND)

    def run(self):
        failures = passed = 0
        for name, test in self.tests():
            if self.options.only and self.options.only not in name:
                continue
            traces, begin = Traces(self.machine.mark, self.machine.work), time.monotonic()
            try:
                test()
                wrong = traces.left()
            except (AssertionError, RuntimeError, OSError) as error:
                wrong = [str(error)]
                for run in self.runs:
                    run.process.kill()  # and with it, its ranks
                    run.process.wait()
            failures += bool(wrong)
            passed += not wrong
            print(f"{'FAILED ' if wrong else 'passed '} {time.monotonic() - begin:5.1f} s  {name}", flush=True)
            for line in wrong:
                print(f"  {line}", flush=True)
        print(f"{passed} passed, {failures} failed")
        return 1 if failures or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--plugins", required=True, help="the folder with its plugins")
    parser.add_argument("--work", help="where runs write; removed after a run without failures")
    parser.add_argument("--only", metavar="TEXT", help="the tests whose name holds this")
    options = parser.parse_args()
    options.work = options.work or tempfile.mkdtemp(prefix="strata_signals_")
    shutil.rmtree(options.work, ignore_errors=True)
    status = Signals(options).run()
    if status == 0:
        shutil.rmtree(options.work, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
