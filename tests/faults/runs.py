"""Starts runs of the `strata` executable, watches them and interferes."""
import contextlib
import fcntl
import glob
import json
import os
import select
import shutil
import subprocess
import time

from engine import TINY_MODELS, read_weights, set_arguments, write_tokens
from place import build_folder
from traces import MARK

STEPS = 20
DEADLINE = 120


def where_they_stand(processes):
    """Each thread of the processes with its state and what it waits for in the kernel; call stacks too where there is a debugger."""
    lines = []
    for process in dict.fromkeys(processes):
        for task in sorted(glob.glob(f"/proc/{process}/task/*")):
            with contextlib.suppress(OSError):
                texts = [open(f"{task}/{name}").read() for name in ("comm", "stat", "wchan")]
                lines.append(f"process {process}, thread {texts[0].strip()}: {texts[1].rsplit(')', 1)[1].split()[0]} {texts[2]}")
        if shutil.which("gdb"):
            found = subprocess.run(["gdb", "-p", str(process), "-batch", "-ex", "thread apply all bt 20"], capture_output=True, text=True)
            lines += [line[:200] for line in found.stdout.splitlines() if line.startswith(("Thread", "#"))]
    return "\n".join(lines)


class Run:
    """One `strata train` under way. Its metrics come through a pipe that holds little: a run whose metrics are not read soon
    waits in the middle of a step, so that a test can say how far it has come."""

    def __init__(self, machine, settings, ranks, resume=None, export=None, prefix=(), slow=True, quiet=True, **options):
        self.folder = machine.new_folder()
        self.summary_file = os.path.join(self.folder, "summary.json")
        self.lines, self.buffer, self.pipe = [], b"", None
        arguments = [*prefix, machine.strata, "train", machine.config, *set_arguments(settings), "--summary", self.summary_file]
        arguments += ["--nproc", str(ranks)] if ranks > 1 else []
        arguments += ["--resume", *([resume] if resume != "latest" else [])] if resume else []
        arguments += ["--export", export] if export else []
        arguments += ["--quiet"] if quiet else []
        if slow:
            path = os.path.join(self.folder, "metrics")
            os.mkfifo(path)
            self.pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, 4096)
            arguments += ["--metrics", path]
        self.output_file = open(os.path.join(self.folder, "output"), "w+")
        self.process = subprocess.Popen(arguments, env=machine.environment, stdin=subprocess.DEVNULL, stdout=self.output_file,
                                        stderr=subprocess.STDOUT, **options)
        machine.runs.append(self)

    def read_metrics(self, wait=0.05):
        if self.pipe is None:
            time.sleep(wait)
            return
        if select.select([self.pipe], [], [], wait)[0]:
            data = os.read(self.pipe, 4096)
            if not data:
                time.sleep(wait)  # nobody writes: not yet, or no more
            self.buffer += data
            *lines, self.buffer = self.buffer.split(b"\n")
            self.lines += [json.loads(line) for line in lines]

    def wait_for_step(self, step):
        """Until `step` steps were made; whether the run came that far."""
        deadline = time.monotonic() + DEADLINE
        while not self.lines or self.lines[-1]["step"] < step:
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            self.read_metrics()
        return True

    def ranks(self):
        """Process numbers of the ranks."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            children = [int(number) for number in file.read().split()]
        return children or [self.process.pid]

    def finish(self):
        """Reads to the end. The exit status, as a shell gives it."""
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                standing = where_they_stand([self.process.pid, *self.ranks()])
                self.process.kill()
                raise RuntimeError(f"still running after {DEADLINE} s: {self.output}\n{standing}")
            self.read_metrics()
        while self.pipe is not None and select.select([self.pipe], [], [], 0)[0]:
            lines = len(self.lines), len(self.buffer)
            self.read_metrics()
            if lines == (len(self.lines), len(self.buffer)):
                break
        self.close()
        status = self.process.returncode
        return status if status >= 0 else 128 - status

    def close(self):
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    @property
    def output(self):
        self.output_file.seek(0)
        return self.output_file.read()

    @property
    def summary(self):
        with open(self.summary_file) as file:
            return json.load(file)


class Machine:
    """The executable, a tiny model and its data, and a folder for what a test writes."""

    def __init__(self, strata, plugins, work):
        self.strata, self.work, self.count = os.path.abspath(strata), os.path.abspath(work), 0
        self.mark, self.runs = f"{os.getpid()}", []
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": os.path.abspath(plugins), "OMP_NUM_THREADS": "1", MARK: self.mark}
        os.makedirs(self.work, exist_ok=True)
        tokens = os.path.join(self.work, "tokens.bin")
        write_tokens(tokens)
        model, sizes = next(iter(TINY_MODELS.items()))
        self.config = os.path.join(self.work, "faults.json")
        with open(self.config, "w") as file:
            json.dump({"device": "cpu", "model": {"plugin": model, "seq_len": 32, **sizes}, "data": {"path": tokens, "order": "shuffled"},
                       "train": {"steps": STEPS, "global_batch": 8, "clip": 0.5, "seed": 3},
                       "learning_rate": {"base": 1e-3, "plugin": "cosine", "warmup": 4, "final_ratio": 0.1},
                       "communicator": {"timeout_s": 30}}, file, indent=1)

    def end_runs(self):
        """Kills those that a failed test left running, and with them their ranks."""
        for run in self.runs:
            run.process.kill()
            run.process.wait()
        self.runs.clear()

    def new_folder(self):
        self.count += 1
        folder = os.path.join(self.work, f"{self.count}")
        os.makedirs(folder)
        return folder

    def call(self, *arguments):
        """`strata ARGUMENTS`: exit status and output."""
        done = subprocess.run([self.strata, *arguments], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=DEADLINE)
        return done.returncode, done.stdout


class Finished:
    """Losses and weights of a whole training."""

    def __init__(self, losses, folder):
        self.losses, self.weights = losses, {name: values.tobytes() for name, values in read_weights(folder).items()}


def checkpoints(folder):
    """The steps of whole checkpoints, ascending."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())


@contextlib.contextmanager
def failing(machine, folder, after, **more):
    """From the `after`-th read or write of a process in `folder` on, they fail with EIO, or as `more` says (failing_disk.cpp)."""
    environment = {"LD_PRELOAD": str(build_folder() / "lib/libfailing_disk.so"), "FAILING_FOLDER": folder, "FAILING_AFTER": str(after), **more}
    machine.environment.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del machine.environment[name]
