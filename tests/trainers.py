"""Runs whose ranks are threads of a matrix_trainer (matrix/trainer.cpp), which trains one run after the other: for tests of what is computed,
as a run takes a fraction of the time that processes take to start. Communicators and the command line are left out."""
import json
import os
import queue
import select
import shutil
import subprocess
import tempfile
import time

from engine import WEIGHTS, Result

PATIENCE = 120  # seconds for one run


class Trainers:
    """`count` of them; any number of threads may call train()."""

    def __init__(self, program, engine, count=1):
        self.program, self.engine = str(program), engine
        self.free = queue.Queue()
        for _ in range(count):
            self.free.put(None)  # started when it is needed

    def train(self, config, ranks, settings, digests=True, keep=None):
        """The result, its weights and digests of gradients among it, and what a dry run says of every rank. Without `digests` ranks send
        nothing for them. `keep`: a new folder for the export, which is not read then."""
        trainer = self.free.get()
        folder = tempfile.mkdtemp(prefix="run", dir=self.engine.work)
        begin = time.monotonic()
        try:
            if trainer is None:
                trainer = subprocess.Popen([self.program], env=self.engine.environment, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said = self.ask(trainer, {"config": config, "ranks": ranks, "settings": settings, "folder": folder, "digests": digests})
            command = self.engine.command(self.engine.train_arguments(config, ranks, settings))
            result = Result(command, said["status"], said["said"], time.monotonic() - begin)
            if keep and result.status == 0:
                shutil.move(os.path.join(folder, WEIGHTS), keep)
            if result.status == 0:
                result.read(folder)
            return result, said["plan"]
        finally:
            shutil.rmtree(folder)
            self.free.put(trainer if trainer.poll() is None else None)

    def ask(self, trainer, request):
        """One answer. A trainer that ends, or is late and is killed, is an answer too."""
        trainer.stdin.write(json.dumps(request).encode() + b"\n")
        trainer.stdin.flush()
        text, end = b"", time.monotonic() + PATIENCE
        while not text.endswith(b"\n"):
            late = not select.select([trainer.stdout], [], [], max(0.0, end - time.monotonic()))[0]
            part = b"" if late else os.read(trainer.stdout.fileno(), 1 << 16)
            if not part:
                trainer.kill()
                text += b"" if late else trainer.stdout.read()
                return {"status": -1 if late else trainer.wait(), "plan": [],
                        "said": f"still running after {PATIENCE} s" if late else f"the trainer died: {text.decode(errors='replace')}"}
            text += part
        return json.loads(text)
