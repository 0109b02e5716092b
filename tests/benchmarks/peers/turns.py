"""Training runs that compute one at a time, a step each: what is measured within a round of turns meets the same machine, however its
speed changes from second to second. `strata train --turns` and train.py --turns are the other end (core/tools/train/turn.hpp)."""
import os
import select
import subprocess
import time

PATIENCE_S = 900  # for a run's start and for a step


class Failed(Exception):
    pass


class Run:
    """One run of `ranks` processes. Every rank writes a byte to `arrivals` when it stands before a step and reads one from `turns` to begin it."""

    def __init__(self, command, ranks, environment, folder, by_descriptor):
        """`by_descriptor`: --turns gets two descriptors that the run inherits; else two named pipes, which reach it through any launcher."""
        self.command, self.ranks, self.output = [str(word) for word in command], ranks, folder / "output"
        folder.mkdir()
        names = [folder / "turns", folder / "arrivals"]
        for name in names:
            os.mkfifo(name)
        # Open for both directions, so that opening waits for nobody. A run sees the end of `turns` when this process has ended.
        self.turns, self.arrivals = (os.open(name, os.O_RDWR) for name in names)
        inherited = [os.open(names[0], os.O_RDONLY), os.open(names[1], os.O_WRONLY)] if by_descriptor else []
        with open(self.output, "w") as output:
            self.process = subprocess.Popen([*self.command, "--turns", ",".join(map(str, inherited or names))], stdout=output,
                                            stderr=subprocess.STDOUT, env=environment, cwd=folder, pass_fds=inherited)
        for end in inherited:
            os.close(end)

    def wait_until_it_stands(self):
        """All ranks stand before a step. Throws Failed when the run ends instead."""
        missing, deadline = self.ranks, time.monotonic() + PATIENCE_S
        while missing:
            if select.select([self.arrivals], [], [], 1.0)[0]:
                missing -= len(os.read(self.arrivals, missing))
            elif self.process.poll() is not None or time.monotonic() > deadline:
                self.fail("it ended before its step" if self.process.poll() is not None else f"{missing} of {self.ranks} ranks did not reach a step")

    def go(self):
        os.write(self.turns, b"." * self.ranks)

    def finish(self):
        """What it printed, once it has ended. Throws Failed for an exit status that is not 0."""
        try:
            status = self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.fail("it did not end")
        if status != 0:
            self.fail(f"exit status {status}")
        return self.output.read_text()

    def fail(self, what):
        raise Failed(f"{' '.join(self.command)}\n{what}\n{self.output.read_text()[-4000:]}")

    def end(self):
        """Ends it when it has not ended, and its ends of the pipes."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for end in (self.turns, self.arrivals):
            os.close(end)


def in_turns(start, steps, turn=1):
    """Starts all (functions that give a Run) and lets them make their steps in turns of `turn` steps, each round of turns begun by another
    one. Returns what each printed. Throws Failed."""
    runs = []
    try:
        for begin in start:
            runs.append(begin())
        for run in runs:
            run.wait_until_it_stands()
        printed = [None] * len(runs)
        for number, begin in enumerate(range(0, steps, turn)):
            first = number % len(runs)
            for index in [*range(first, len(runs)), *range(first)]:
                for step in range(begin, min(begin + turn, steps)):
                    runs[index].go()
                    if step + 1 < steps:
                        runs[index].wait_until_it_stands()
                    else:
                        printed[index] = runs[index].finish()
        return printed
    finally:
        for run in runs:
            run.end()
