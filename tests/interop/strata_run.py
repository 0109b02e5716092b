"""Runs `strata` and reads what it wrote."""
import dataclasses
import json
import os
import pathlib
import subprocess
import threading

import loaded_programs


@dataclasses.dataclass
class Run:
    losses: list
    norms: list
    export: pathlib.Path


class Failed(Exception):
    pass


class Strata:
    timeout_s = 1800

    def __init__(self, program, plugins, config, work):
        self.program, self.config, self.work = program, config, work
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
        self.count, self.lock = 0, threading.Lock()

    def train(self, init, tokens, steps, ranks=1, settings=()):
        """Throws Failed with the program's last words; whatever it started is gone then. The export is the caller's."""
        with self.lock:
            self.count += 1
            place = self.work / f"run{self.count}"
        place.mkdir()
        self.call(["train", self.config, "--nproc", str(ranks), "--quiet", "--export", place / "export", "--metrics", place / "metrics",
                   "--summary", place / "summary"], (f"model.init={init}", f"data.path={tokens}", f"train.steps={steps}", *settings))
        summary = json.loads((place / "summary").read_text())
        metrics = [json.loads(line) for line in (place / "metrics").read_text().splitlines()]
        return Run(summary["losses"], [step["grad_norm"] for step in metrics], place / "export")

    def evaluate(self, init, tokens, ranks=1, settings=()):
        """What `strata eval` prints. Throws Failed."""
        words = self.call(["eval", self.config, "--init", init, "--data", tokens, "--nproc", str(ranks), "--quiet", "--format", "json"],
                          (f"data.path={tokens}", "train.steps=1", *settings))
        return json.loads(words)

    def sample(self, init, prompt, tokens, ranks=1, settings=()):
        """What `strata sample` makes of these tokens without chance. Throws Failed."""
        words = self.call(["sample", self.config, "--init", init, "--prompt-tokens", ",".join(map(str, prompt)), "--tokens", str(tokens),
                           "--temperature", "0", "--nproc", str(ranks), "--oversubscribe", "--format", "json"], ("train.steps=1", *settings))
        return json.loads(words)

    def call(self, arguments, settings):
        command = [self.program, *arguments]
        for setting in settings:
            command += ["--set", setting]
        try:
            done = loaded_programs.run(command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=self.timeout_s)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"not done after {self.timeout_s} s: {(late.stdout or b'').decode(errors='replace')[-2000:]}") from None
        if done.returncode != 0:
            raise Failed(f"exit status {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout
