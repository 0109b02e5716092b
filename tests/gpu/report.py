"""What machine this is, what was in use on its GPU, and the table of results. Nothing beyond Python's standard library."""
import os
import pathlib
import shutil
import subprocess
import sys
import threading


class Machine:
    """What is here."""

    def __init__(self):
        self.torch = pathlib.Path(os.environ["STRATA_TORCH_DIR"])
        self.gpu = self.query("name,driver_version,memory.total,compute_cap")
        folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"])
        self.sanitizer = shutil.which("compute-sanitizer", path=folders)

    @staticmethod
    def query(what):
        """nvidia-smi's values for the first GPU, or None without one."""
        if not shutil.which("nvidia-smi"):
            return None
        done = subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits", "-i", "0"], capture_output=True, text=True,
                              timeout=60)
        return [value.strip() for value in done.stdout.splitlines()[0].split(",")] if done.returncode == 0 and done.stdout.strip() else None

    def torch_version(self):
        try:
            text = (self.torch / "version.py").read_text()
        except OSError:
            return "of an unnamed version"
        return ", ".join(line for line in text.splitlines() if line.startswith(("__version__ =", "git_version =")))

    def show(self):
        print(f"GPU        {', '.join(self.gpu) if self.gpu else 'none that nvidia-smi shows'} (name, driver, MiB, compute capability)")
        print(f"libtorch   {self.torch}: {self.torch_version()}")
        print(f"processor  {os.cpu_count()} cores; python {sys.version.split()[0]}; compute-sanitizer {self.sanitizer or 'not here'}", flush=True)


class Results:
    """Lines of the table, in their order."""

    def __init__(self):
        self.lines = []

    def add(self, part, what, good, figures):
        """`good`: True, False, or None for what could not be had here."""
        self.lines.append({"part": part, "what": what, "result": {True: "ok", False: "FAILED", None: "not here"}[good], "figures": figures})
        print(f"[{self.lines[-1]['result']}] {part}: {what}: {figures}", flush=True)
        return good

    def failed(self):
        return [line for line in self.lines if line["result"] == "FAILED"]

    def table(self):
        rows = [["part", "what", "result", "figures"], *([line[key] for key in ("part", "what", "result", "figures")] for line in self.lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]) for row in rows)


class MemoryWatch:
    """The largest memory in use on the GPU, as nvidia-smi sees it, in bytes above what was in use before."""

    def __init__(self):
        self.base, self.peak, self.ended = self.used(), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    @staticmethod
    def used():
        values = Machine.query("memory.used")
        return int(values[0]) << 20 if values else 0

    def watch(self):
        while not self.ended.wait(0.3):
            self.peak = max(self.peak, self.used() - self.base)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def last_words(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def first_failure(done):
    """What a test said first, from Catch2's output; or the end of any other."""
    if done is None:
        return "not run: the time was over"
    lines = done[1].splitlines()
    at = next((i for i, line in enumerate(lines) if "FAILED:" in line or "terminate called" in line), None)
    words = " ".join(line.strip() for line in lines[at:at + 8]) if at is not None else last_words(done[1])
    return f"exit status {done[0]}: {words}"
