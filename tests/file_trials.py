"""Readers of text, tokens and tokenizers in one process (tests/kinds/file_trials.cpp)."""
import json
import os
import subprocess

from place import build_folder


class FileTrials:
    def __init__(self):
        environment = {**os.environ, "STRATA_PLUGIN_PATH": str(build_folder() / "lib/strata/plugins"), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([build_folder() / "bin/file_trials"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        """What came of a request; a reader that ends the process fails the test."""
        self.process.stdin.write(json.dumps(request, default=str) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process ended with status {self.process.wait(10)} over {json.dumps(request, default=str)[:2000]}"
        return json.loads(answer)

    def refused(self, **request):
        """The one line with which a request is refused."""
        answer = self.ask(**request)
        assert "refused" in answer and "\n" not in answer["refused"], f"{json.dumps(request, default=str)[:2000]}: {answer}"
        return answer["refused"]

    def open(self, command, path, plugin="", *settings):
        return self.ask(**{command: path, "plugin": plugin, "settings": list(settings)})

    def pack(self, *inputs, output, **options):
        """`strata data pack` with these options."""
        return self.ask(pack=[str(path) for path in inputs], output=output, **options)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
