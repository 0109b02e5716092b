"""A tiny config in a folder of its own, and commands run there."""
import os
import select
import signal
import subprocess
import time

import pytest
from commands import run, told
from engine import TINY_MODELS
from pseudo_terminal import open_terminal

DEADLINE = 120


class Program:
    """`strata` with a tiny config."""

    def __init__(self, strata, plugins, folder, tokens):
        self.strata, self.plugins, self.folder = strata, plugins, folder
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
        self.config = str(folder / "run.yaml")
        model, sizes = next(iter(TINY_MODELS.items()))
        with open(self.config, "w") as file:
            file.write("device: cpu\nmodel: {plugin: %s, seq_len: 32, %s}\n" % (model, ", ".join(f"{key}: {value}" for key, value in sizes.items())))
            file.write(f"data: {{path: {tokens}}}\ntrain: {{steps: 2, global_batch: 2}}\nlearning_rate: {{base: 1e-3}}\n")

    def expect(self, status, texts, *arguments, environment=(), **options):
        """What is said on both outputs by a command that ends with this status and says these texts."""
        done = run([self.strata, *arguments], env={**self.environment, **dict(environment)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   timeout=DEADLINE, cwd=self.folder, **options)
        missing = [text for text in texts if text not in done.stdout]
        assert done.returncode == status and not missing, f"does not say {missing} with status {status}: {told(done)}"
        assert "internal error" not in done.stdout, told(done)
        return done.stdout

    def on_terminal(self, *arguments, environment=(), signalled=None):
        """Everything that a terminal gets; with `signalled`, SIGINT is sent when that is seen."""
        ours, theirs = open_terminal()
        started = subprocess.Popen([self.strata, *arguments], env={**self.environment, **dict(environment)}, stdin=subprocess.DEVNULL,
                                   stdout=theirs, stderr=theirs, cwd=self.folder, start_new_session=True)
        os.close(theirs)
        seen, deadline = b"", time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                seen += os.read(ours, 65536)
            except OSError:  # nobody has the other end
                break
            if signalled and signalled in seen:
                signalled = None
                started.send_signal(signal.SIGINT)
        started.kill()
        started.wait()
        os.close(ours)
        return seen.decode()


@pytest.fixture(scope="module")
def shell(strata, plugins, folder, tokens):
    return Program(strata, plugins, folder, tokens)
