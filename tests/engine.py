"""Runs the `strata` executable for tests: configs, token files, results, exported weights. Needs nothing beyond Python."""
import array
import dataclasses
import glob
import json
import math
import os
import random
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
import time

import loaded_programs

# Odd wherever the model allows it: what is cut into 2, 3 or 4 parts leaves rests. Two tensor-parallel ranks share the heads and the MLP.
TINY_SIZES = {"hidden_size": 40, "layers": 3, "heads": 4, "intermediate_size": 102, "vocabulary": 257}
TINY_MODELS = {"gpt_neox": TINY_SIZES, "gpt2": TINY_SIZES, "llama": {**TINY_SIZES, "key_value_heads": 2}}
VOCABULARY = 257
SUMMARY, METRICS, WEIGHTS = "summary.json", "metrics.jsonl", "weights"  # of a run, in its folder


def write_tokens(path, count=20000, seed=5):
    """Text of a made-up language: each token is followed by one of three, so that there is something to learn."""
    draw = random.Random(seed)
    followers = [[draw.randrange(VOCABULARY) for _ in range(3)] for _ in range(VOCABULARY)]
    tokens = array.array("H", [0])
    while len(tokens) < count:
        tokens.append(followers[tokens[-1]][draw.choice((0, 0, 0, 1, 1, 2))])
    with open(path, "wb") as file:
        tokens.tofile(file)


def read_weights(folder):
    """Every tensor of an exported folder: name -> array of floats."""
    weights = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with open(path, "rb") as file:
            header_bytes = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(header_bytes))
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                if entry["dtype"] != "F32":
                    raise ValueError(f"{path}: {name} is {entry['dtype']}, exports are F32")
                begin, end = entry["data_offsets"]
                file.seek(8 + header_bytes + begin)
                values = array.array("f")
                values.frombytes(file.read(end - begin))
                weights[name] = values
    if not weights:
        raise ValueError(f"{folder} holds no weights")
    return weights


@dataclasses.dataclass
class Result:
    command: str            # for a shell; without --summary and --export
    status: int
    output: str             # standard output and error
    seconds: float
    summary: dict = None    # of a run that ended well
    weights: dict = None
    steps: list = None      # what --metrics says of each, digests of the gradient among it

    @property
    def losses(self):
        return self.summary["losses"]

    def read(self, folder):
        """What a run that ended well wrote; of weights and metrics what there is."""
        with open(os.path.join(folder, SUMMARY)) as file:
            self.summary = json.load(file)
        if os.path.exists(os.path.join(folder, WEIGHTS)):
            self.weights = read_weights(os.path.join(folder, WEIGHTS))
        if os.path.exists(os.path.join(folder, METRICS)):
            with open(os.path.join(folder, METRICS)) as file:
                self.steps = [json.loads(line) for line in file]

    def error(self):
        """The one line that an error is; everything when it is more."""
        lines = [line for line in self.output.splitlines() if line]
        return lines[0] if len(lines) == 1 else self.output


class Engine:
    """One executable, one search path, one folder for what runs write."""

    def __init__(self, strata, plugin_path, work, environment=None):
        self.strata, self.work = os.path.abspath(strata), os.path.abspath(work)
        self.settings_of_environment = {"STRATA_PLUGIN_PATH": ":".join(map(os.path.abspath, plugin_path)), "OMP_NUM_THREADS": "1", **(environment or {})}
        self.environment = {**os.environ, **self.settings_of_environment}
        os.makedirs(self.work, exist_ok=True)

    def run(self, *arguments, timeout=120):
        """The ended `strata ARGUMENTS`."""
        return loaded_programs.run([self.strata, *map(str, arguments)], env=self.environment, capture_output=True, text=True, timeout=timeout)

    def call(self, *arguments):
        """Standard output of `strata ARGUMENTS`, which must succeed, as JSON."""
        done = self.run(*arguments)
        if done.returncode != 0:
            raise RuntimeError(f"strata {shlex.join(map(str, arguments))}: exit status {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def plugins(self):
        """Every usable plugin on the search path, as `strata plugins show --all` describes it."""
        return self.call("plugins", "show", "--all", "--format", "json")

    def write_config(self, name, tree):
        path = os.path.join(self.work, name)
        with open(path, "w") as file:
            json.dump(tree, file, indent=1, default=os.fspath)
        return path

    def plan(self, config, ranks, settings):
        """What a dry run says of every rank."""
        return self.call("plan", config, "--nproc", str(ranks), "--format", "json", *set_arguments(settings))["ranks"]

    def train(self, config, ranks, settings, with_weights=False, with_gradients=False, timeout=120):
        folder = tempfile.mkdtemp(prefix="run", dir=self.work)
        arguments = self.train_arguments(config, ranks, settings)
        outputs = ["--summary", os.path.join(folder, SUMMARY)]
        if with_weights:
            outputs += ["--export", os.path.join(folder, WEIGHTS)]
        if with_gradients:
            outputs += ["--metrics", os.path.join(folder, METRICS), "--digests"]
        begin = time.monotonic()
        try:
            done = loaded_programs.run(arguments + outputs, env=self.environment, text=True, timeout=timeout, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = -1, f"still running after {timeout} s\n{late.stdout or ''}"
        result = Result(self.command(arguments), status, output, time.monotonic() - begin)
        if status == 0:
            result.read(folder)
        shutil.rmtree(folder)
        return result

    def train_arguments(self, config, ranks, settings):
        return [self.strata, "train", config, "--quiet", *(["--nproc", str(ranks)] if ranks > 1 else []), *set_arguments(settings)]

    def command(self, arguments):
        """For a shell."""
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.settings_of_environment.items())
        return f"{variables} {shlex.join(arguments)}"


def set_arguments(settings):
    return [argument for setting in settings for argument in ("--set", setting)]


def built_plugins(folder):
    """The folders of the plugins that the example projects' builds in `folder` hold."""
    return sorted({os.path.dirname(path) for path in glob.glob(os.path.join(glob.escape(folder), "*-build", "**", "libstrata_*.so"), recursive=True)})


def ledger_difference(summary, plan):
    """Where the peaks that a run held are not those that its plan names: a sentence, or None."""
    for rank, (held, planned) in enumerate(zip(summary["memory"], plan, strict=True)):
        for key in ("peak_bytes", "total_peak_bytes"):
            if held[key] != planned[key]:
                return f"rank {rank} held {key} {held[key]}, and its dry run says {planned[key]}"
    return None


class Slots:
    """At most `count` processes' worth at a time; a run of more ranks takes all."""

    def __init__(self, count):
        self.count, self.free, self.changed = count, count, threading.Condition()

    def run(self, processes, work):
        wanted = min(processes, self.count)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= wanted)
            self.free -= wanted
        try:
            return work()
        finally:
            with self.changed:
                self.free += wanted
                self.changed.notify_all()


def relative_difference(values, reference):
    """The largest |a - b| / |b|; infinite when a value is missing or not finite."""
    if len(values) != len(reference) or not all(v is not None and math.isfinite(v) for v in values):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(values, reference))
