#!/usr/bin/env python3
"""Runs that are stopped, killed or out of disk: what they leave, and that going on from it gives the uninterrupted run's bits.

faults.py --strata PATH --plugins DIR [--work DIR] [--full] [--disk-full] [--seed N] [--only NAME]

Without --full a sample of what can go wrong. After every test: no process, no temporary file, no shared memory is left. --disk-full is
the tests of a full disk, which mount one: exit status 77 where the system lets nobody mount.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from runs import STEPS, Finished, Machine, Run, checkpoints
from small_disk import go_where_mounts_are_allowed, small_disk
from traces import Traces, adopt_orphans

ZERO3, DDP = ["partitioner.plugin=zero3"], ["partitioner.plugin=ddp"]
STAGES = ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]
# name: ranks, settings; the ones in the default run first
LAYOUTS = {
    "ddp, 1 rank": (1, DDP),
    "zero3, 2 ranks, cpu offload, bf16": (2, ZERO3 + ["offload.optimizer.plugin=cpu", "precision.plugin=bf16"]),
    "zero3, 2 stages": (2, ZERO3 + STAGES),
    "ddp, 2 ranks": (2, DDP),
    "zero3, 2 ranks, shared memory": (2, ZERO3 + ["communicator.plugin=shm"]),
    "zero3, 1 rank": (1, ZERO3),
    "zero3, 2 ranks": (2, ZERO3),
    "ddp, 2 stages, bf16": (2, DDP + STAGES + ["precision.plugin=bf16"]),
    "ddp, 2 ranks, bf16": (2, DDP + ["precision.plugin=bf16"]),
    "ddp, 1 rank, cpu offload": (1, DDP + ["offload.optimizer.plugin=cpu"]),
    "zero3, 4 ranks, 2 stages, cpu offload": (4, ZERO3 + STAGES + ["offload.optimizer.plugin=cpu"]),
}

# A plugin whose own state changes while it runs: the scale goes down at first and up after two steps.
FP16 = ["precision.plugin=fp16", "precision.fp16.initial_scale_power=30", "precision.fp16.loss_scale_window=2", "precision.fp16.hysteresis=1"]


class Faults:
    def __init__(self, options):
        if os.path.exists(os.path.join(options.plugins, "libstrata_precision_fp16.so")):
            LAYOUTS["zero3, 2 ranks, fp16"] = (2, ZERO3 + FP16)
        self.options, self.machine = options, Machine(options.strata, options.plugins, options.work)
        self.draw, self.references = random.Random(options.seed), {}

    # What tests are made of.

    def reference(self, layout):
        """The uninterrupted run, once for each layout."""
        if layout not in self.references:
            ranks, settings = LAYOUTS[layout]
            weights = os.path.join(self.machine.new_folder(), "weights")
            run = Run(self.machine, settings, ranks, export=weights, slow=False)
            self.expect(run, 0)
            self.references[layout] = Finished(run.summary["losses"], weights)
        return self.references[layout]

    def start(self, layout, folder, more=(), **options):
        ranks, settings = LAYOUTS[layout]
        return Run(self.machine, settings + [f"checkpoint.path={folder}", *more], ranks, **options)

    def expect(self, run, status, *texts):
        found = run.finish()
        if found != status:
            raise AssertionError(f"exit status {found} instead of {status}: {run.output}")
        for text in texts:
            if text not in run.output:
                raise AssertionError(f"does not say '{text}': {run.output}")
        return run

    def go_on(self, layout, folder, resume="latest", more=()):
        """Resumes and runs to the end, which must be the uninterrupted run's, bit by bit. Returns the step it went on from."""
        weights = os.path.join(self.machine.new_folder(), "weights")
        run = self.expect(self.start(layout, folder, more, resume=resume, export=weights, slow=False), 0)
        self.compare(layout, run, weights)
        return run.summary["first_step"]

    def compare(self, layout, run, weights):
        reference, first = self.reference(layout), run.summary["first_step"]
        mine = Finished(run.summary["losses"], weights)
        if mine.losses != reference.losses[first:]:
            raise AssertionError(f"losses from step {first + 1} on are {mine.losses}, uninterrupted {reference.losses[first:]}")
        different = [name for name in reference.weights if mine.weights.get(name) != reference.weights[name]]
        if different:
            raise AssertionError(f"{len(different)} of {len(reference.weights)} tensors differ, {different[0]} among them")

    def folder(self):
        return os.path.join(self.machine.new_folder(), "checkpoints")

    # Tests.

    def stopped(self, layout, number=signal.SIGINT):
        """By a signal at step 7; then resumed."""
        folder = self.folder()
        run = self.start(layout, folder)
        assert run.wait_for_step(7), run.output
        run.process.send_signal(number)
        self.expect(run, 128 + number, f"stopped by {signal.Signals(number).name} after step ", "--resume goes on from there")
        done = run.summary["first_step"] + run.summary["steps"]
        if not 7 <= done < STEPS or checkpoints(folder) != [done] or os.readlink(os.path.join(folder, "latest")) != f"step-{done}":
            raise AssertionError(f"{done} steps were made, and there are {os.listdir(folder)}: {run.output}")
        if run.summary["losses"] != self.reference(layout).losses[:done]:
            raise AssertionError("a run with checkpoints has other losses than one without")
        if self.go_on(layout, folder) != done:
            raise AssertionError("resumed from another step than it stopped at")

    def stopped_one_rank_only(self):
        """The signal reaches one of two ranks: both stop before the same step."""
        layout, folder = "ddp, 2 ranks", self.folder()
        run = self.start(layout, folder)
        assert run.wait_for_step(7), run.output
        os.kill(run.ranks()[1], signal.SIGTERM)
        status = run.finish()
        if status != 143:
            raise AssertionError(f"exit status {status}: {run.output}")
        self.go_on(layout, folder)

    def stopped_twice(self, layout):
        """The second signal does not wait for the step's end."""
        run = self.start(layout, self.folder())
        assert run.wait_for_step(3), run.output
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.8)  # its metrics are not read, so the step cannot end
        begin = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        status = run.process.wait(20)
        run.close()
        if status not in (130, -signal.SIGINT) or time.monotonic() - begin > 5:
            raise AssertionError(f"exit status {status} after {time.monotonic() - begin:.1f} s: {run.output}")

    def stopped_without_path(self):
        run = Run(self.machine, DDP, 1)
        assert run.wait_for_step(3), run.output
        run.process.send_signal(signal.SIGTERM)
        self.expect(run, 143, "nothing is saved, as checkpoint.path is empty")

    def waited_for(self, layout, communicator, timeout, seconds):
        """One rank, or stage, is held up for much longer than communicator.timeout_s, and is waited for."""
        more = [f"communicator.plugin={communicator}", f"communicator.timeout_s={timeout}"]
        run = self.start(layout, self.folder(), more)
        assert run.wait_for_step(3), run.output
        time.sleep(seconds)  # rank 0's metrics are not read, so it cannot go on
        self.expect(run, 0, "; the wait goes on" if seconds > 2 * timeout else "")
        if run.summary["losses"] != self.reference(layout).losses:
            raise AssertionError("the losses are not those of a run that was not held up")

    def stopped_process(self, layout, communicator):
        """A rank gets SIGSTOP, as at a breakpoint: told within 10 s as stopped, with what each rank was doing."""
        run = self.start(layout, self.folder(), [f"communicator.plugin={communicator}"])
        assert run.wait_for_step(3), run.output
        begin, rank = time.monotonic(), run.ranks()[1]
        os.kill(rank, signal.SIGSTOP)
        while "is stopped, not slow" not in run.output:
            if time.monotonic() - begin > 10:
                raise AssertionError(f"not told within 10 s: {run.output}")
            run.read_metrics()
        self.expect(run, 3, "rank 1 is stopped, not slow", "What each rank was doing:")

    def killed(self, layout, whole=False):
        """At a random moment: a rank, or the process that started the ranks; then resumed from the last checkpoint."""
        folder = self.folder()
        every = "checkpoint.every=2"
        run = self.start(layout, folder, [every])
        run.wait_for_step(self.draw.randrange(2, STEPS))
        deadline = time.monotonic() + self.draw.uniform(0, 0.03)
        while time.monotonic() < deadline:
            run.read_metrics(0.001)
        victim = run.process.pid if whole else self.draw.choice(run.ranks())
        os.kill(victim, signal.SIGKILL)
        self.after_kill(layout, folder, every, run)

    def killed_while_saving(self, layout):
        """As soon as the temporary folder of the second or a later checkpoint is there."""
        for _ in range(20):
            folder = self.folder()
            every = "checkpoint.every=2"
            run = self.start(layout, folder, [every])
            run.wait_for_step(self.draw.randrange(2, 12))
            delay = self.draw.uniform(0, 0.004)
            caught = self.wait_for_temporary(run, folder)
            time.sleep(delay)
            victim = self.draw.choice(run.ranks())
            caught = caught and any(name.endswith(".tmp") for name in os.listdir(folder))
            os.kill(victim, signal.SIGKILL)
            self.after_kill(layout, folder, every, run)
            if caught:
                return
        raise AssertionError("no run could be killed in the middle of a save")

    def wait_for_temporary(self, run, folder):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and run.process.poll() is None:
            if os.path.isdir(folder) and any(name.endswith(".tmp") for name in os.listdir(folder)):
                return True
            run.read_metrics(0)
        return False

    def after_kill(self, layout, folder, every, run):
        status = run.finish()
        if status != 137:
            raise AssertionError(f"exit status {status} instead of 137: {run.output}")
        saved = checkpoints(folder)
        first = self.go_on(layout, folder, more=[every])
        if first not in ([0] if not saved else saved[-2:]):
            raise AssertionError(f"went on from {first}, and there were {saved}")

    def disk_full(self, layout):
        """On a file system that holds the first checkpoint and not the second."""
        disk, size = os.path.join(self.machine.new_folder(), "disk"), 1100 << 10  # a checkpoint has 800 KiB
        with small_disk(disk, size, 16 * size) as enlarge:
            folder = os.path.join(disk, "checkpoints")
            run = self.expect(self.start(layout, folder, ["checkpoint.every=5"], slow=False), 3, "No space left on device", f"{folder}/step-10.tmp/")
            if sorted(os.listdir(folder)) != ["latest", "step-5"] or os.readlink(os.path.join(folder, "latest")) != "step-5":
                raise AssertionError(f"there are {os.listdir(folder)}: {run.output}")
            enlarge()
            if self.go_on(layout, folder) != 5:
                raise AssertionError("did not go on from step 5")

    def sees_what_is_left(self):
        """An orphan that shows no mark, has shared memory without a name, and ends when its input does."""
        program = "import os, sys; os.fork() and os._exit(0); held = os.memfd_create('strata'); print(flush=True); sys.stdin.read()"
        parent = subprocess.Popen([sys.executable, "-c", program], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        parent.stdout.readline()
        parent.wait()
        left = Traces(self.machine.mark, self.machine.work).left(patience=0)
        parent.stdin.close()
        parent.stdout.close()
        if len(left) != 2 or "process" not in left[0] or "shared memory /memfd:strata" not in left[1]:
            raise AssertionError(f"of a process with shared memory it was said: {left}")

    def damaged(self, layout):
        """The latest with one bit altered, cut, or half there: passed over, or refused when it is named."""
        folder = self.folder()
        self.expect(self.start(layout, folder, ["checkpoint.every=5", "checkpoint.keep=0"], slow=False), 0)
        ranks = LAYOUTS[layout][0]
        damages = [(f"shard-{ranks - 1}-of-{ranks}.safetensors", self.flip), (f"rank-0-of-{ranks}.json", os.remove), ("checkpoint.json", self.cut)]
        for step, (name, damage) in zip((20, 15, 10), damages, strict=True):
            damage(os.path.join(folder, f"step-{step}", name))
            path = os.path.join(folder, f"step-{step}")
            named = self.expect(self.start(layout, self.folder(), resume=path, slow=False), 2, name)
            if len([line for line in named.output.splitlines() if not line.startswith(("[rank 1]", "strata: rank "))]) > 2 and ranks == 1:
                raise AssertionError(f"says more than one line: {named.output}")
            status, said = self.machine.call("checkpoint", "info", path)
            if status != 2 or name not in said:
                raise AssertionError(f"`checkpoint info` does not refuse it: {said}")
        weights = os.path.join(self.machine.new_folder(), "weights")
        run = self.expect(self.start(layout, folder, resume="latest", export=weights, slow=False), 0, "step-20", "going on from",
                          "step-5, the one before it")
        self.compare(layout, run, weights)

    def flip(self, path):
        with open(path, "r+b") as file:
            content = bytearray(file.read())
            content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
            file.seek(0)
            file.write(content)

    def cut(self, path):
        os.truncate(path, os.path.getsize(path) // 2)

    def refused(self):
        """Checkpoints of another run."""
        layout, folder = "ddp, 1 rank", self.folder()
        self.expect(self.start(layout, folder, ["train.steps=4"], slow=False), 0)
        latest = os.path.join(folder, "latest")
        for setting, text in (("train.seed=4", "train.seed = 3, and this run has 4"), ("train.global_batch=16", "train.global_batch = 8"),
                              ("data.order=sequential", "data.order = shuffled"), ("model.hidden_size=80", "of shape"),
                              ("model.layers=2", "which this model has not"), ("optimizer.plugin=sgd", "holds exp_avg, exp_avg_sq, master of"),
                              ("train.steps=3", "has 4 steps, and train.steps is 3")):
            run = self.expect(self.start(layout, self.folder(), [setting], resume=latest, slow=False), 2, text)
            if len(run.output.splitlines()) - run.output.count("warning:") != 1:
                raise AssertionError(f"{setting} is not refused by one line: {run.output}")
        self.expect(self.start(layout, folder, slow=False), 2, "holds checkpoints of an earlier run, up to step-4")
        self.expect(Run(self.machine, DDP, 1, resume="latest", slow=False), 2, "checkpoint.path is empty")
        self.expect(Run(self.machine, DDP, 1, resume="/no/such/folder", slow=False), 2, "this folder does not exist")
        writer = self.start(layout, self.folder())
        assert writer.wait_for_step(2), writer.output
        own = next(argument for argument in writer.process.args if argument.startswith("checkpoint.path=")).split("=")[1]
        self.expect(self.start(layout, own, slow=False), 2, "another run is saving its checkpoints here")
        self.expect(writer, 0)
        fresh = self.expect(self.start(layout, self.folder(), ["train.steps=4"], resume="latest", slow=False), 0, "there is no checkpoint yet")
        if fresh.summary["first_step"] != 0:
            raise AssertionError("a run without a checkpoint did not start at its first step")

    def other_layouts(self):
        """Saved by one layout, resumed by another: equal but for the order of sums."""
        moves = [("ddp, 1 rank", "zero3, 2 ranks"), ("zero3, 2 ranks", "zero3, 2 stages"), ("zero3, 2 stages", "ddp, 1 rank")]
        for before, after in moves if self.options.full else moves[:1]:
            folder = self.folder()
            reference = self.reference(before)
            self.expect(self.start(before, folder, ["checkpoint.every=10", "checkpoint.keep=0"], slow=False), 0)
            resumed = self.expect(self.start(after, self.folder(), resume=os.path.join(folder, "step-10"), slow=False), 0, "differs from the one")
            worst = max(abs(a - b) / abs(b) for a, b in zip(resumed.summary["losses"], reference.losses[10:], strict=True))
            if worst > 2e-5:
                raise AssertionError(f"{before} -> {after}: losses differ by {worst:.1e}")

    def exported(self, layout):
        """`checkpoint export` gives the bytes of `train --export`."""
        folder, weights = self.folder(), os.path.join(self.machine.new_folder(), "weights")
        self.expect(self.start(layout, folder, export=weights, slow=False), 0)
        other = os.path.join(self.machine.new_folder(), "weights")
        status, said = self.machine.call("checkpoint", "export", folder, other)
        if status != 0:
            raise AssertionError(said)
        for name in os.listdir(weights):
            with open(os.path.join(weights, name), "rb") as one, open(os.path.join(other, name), "rb") as two:
                if one.read() != two.read():
                    raise AssertionError(f"{name} differs")

    # Running.

    def tests(self):
        full = self.options.full
        few = list(LAYOUTS)[:3]
        if self.options.disk_full:
            for layout in few if full else few[:1]:
                yield f"disk full: {layout}", lambda layout=layout: self.disk_full(layout)
            return
        yield "what is left is seen", self.sees_what_is_left
        for layout in LAYOUTS if full else few:
            yield f"SIGINT at step 7 and resume: {layout}", lambda layout=layout: self.stopped(layout)
        for layout in few if full else few[:1]:
            yield f"SIGTERM at step 7 and resume: {layout}", lambda layout=layout: self.stopped(layout, signal.SIGTERM)
            yield f"two signals: {layout}", lambda layout=layout: self.stopped_twice(layout)
        for communicator in ("shm", "gloo"):
            for layout in ("zero3, 2 stages", "zero3, 4 ranks, 2 stages, cpu offload") if full else ("zero3, 2 stages",):
                yield f"waited for, {communicator}: {layout}", lambda l=layout, c=communicator: self.waited_for(l, c, 1, 4)
                yield f"a stopped rank, {communicator}: {layout}", lambda l=layout, c=communicator: self.stopped_process(l, c)
            if full:
                yield f"waited for 200 s, {communicator}", lambda c=communicator: self.waited_for("zero3, 2 stages", c, 120, 200)
        yield "a signal to one rank only", self.stopped_one_rank_only
        yield "a signal without checkpoint.path", self.stopped_without_path
        for count in range(40 if full else 3):
            layout = list(LAYOUTS)[count % (len(LAYOUTS) if full else 3)]
            yield f"kill -9, {count}: {layout}", lambda layout=layout, whole=count % 4 == 3: self.killed(layout, whole)
        for count in range(10 if full else 2):
            layout = few[count % 2]
            yield f"kill -9 while saving, {count}: {layout}", lambda layout=layout: self.killed_while_saving(layout)
        for layout in few if full else few[:1]:
            yield f"damaged: {layout}", lambda layout=layout: self.damaged(layout)
            yield f"exported: {layout}", lambda layout=layout: self.exported(layout)
        yield "checkpoints of another run", self.refused
        yield "other layouts", self.other_layouts

    def run(self):
        failures = passed = 0
        for name, test in self.tests():
            if self.options.only and self.options.only not in name:
                continue
            traces, begin = Traces(self.machine.mark, self.machine.work), time.monotonic()
            try:
                test()
                wrong = traces.left()
            except (AssertionError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
                wrong = [str(error)] + traces.left()
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
    parser.add_argument("--full", action="store_true", help="every layout, and 50 moments to be killed in")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--only", metavar="TEXT", help="the tests whose name holds this")
    parser.add_argument("--disk-full", action="store_true", help="the tests that mount a small disk, and no others")
    options = parser.parse_args()
    if options.disk_full:
        go_where_mounts_are_allowed()
    adopt_orphans()
    options.work = options.work or tempfile.mkdtemp(prefix="strata_faults_")
    shutil.rmtree(options.work, ignore_errors=True)
    begin = time.monotonic()
    status = Faults(options).run()
    print(f"{time.monotonic() - begin:.0f} s")
    if status == 0:
        shutil.rmtree(options.work, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
