"""Commands of `strata` in forked processes of one program (command_server.cpp): a fraction of what it takes to start them. Where STRATA names
another program, in processes of that."""
import dataclasses
import json
import os
import pathlib
import subprocess
import time

from place import build_folder


@dataclasses.dataclass
class Ended:
    status: int  # 128 and its number for a signal, -1 for a process that was late
    output: str

    def says(self):
        return f"exit status {self.status}: {self.output}"


class CommandServer:
    def __init__(self, plugins, work):
        self.work, self.count, self.server = os.path.abspath(work), 0, None
        os.makedirs(self.work, exist_ok=True)
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": os.path.abspath(plugins), "OMP_NUM_THREADS": "1"}
        if "STRATA" not in os.environ:
            self.server = subprocess.Popen([build_folder() / "libexec/strata/command_server"], env=self.environment, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True)

    def run(self, processes, timeout=60):
        """`processes`: of each the folder that it runs in, its arguments and what its environment has beside the test's. The ended processes."""
        wanted = []
        for folder, arguments, environment in processes:
            self.count += 1
            wanted.append({"arguments": [str(word) for word in arguments], "environment": environment, "folder": str(folder),
                           "output": os.path.join(self.work, f"{self.count}.output")})
        statuses = self.statuses(wanted, timeout)
        ended = []
        for status, process in zip(statuses, wanted, strict=True):
            with open(process["output"], errors="replace") as file:
                ended.append(Ended(status, file.read()))
        return ended

    def statuses(self, wanted, timeout):
        if not self.server:
            return self.run_program(wanted, timeout)
        self.server.stdin.write(json.dumps({"timeout_s": timeout, "processes": wanted}) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def run_program(self, wanted, timeout):
        started = []
        for process in wanted:
            with open(process["output"], "w") as output, open(process.get("errors", os.devnull), "w") as errors:
                started.append(subprocess.Popen([os.environ["STRATA"], *process["arguments"]], cwd=process["folder"], stdin=subprocess.DEVNULL, stdout=output,
                                                stderr=errors if "errors" in process else output, env={**self.environment, **process["environment"]}))
        end = time.monotonic() + timeout
        for process in started:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        return [process.wait() if process.wait() >= 0 else 128 - process.wait() for process in started]

    def command(self, *arguments, environment=None, timeout=60):
        """One command, with its standard output and error apart."""
        self.count += 1
        files = [os.path.join(self.work, f"{self.count}.{name}") for name in ("output", "errors")]
        process = {"arguments": [str(word) for word in arguments], "environment": environment or {}, "folder": self.work, "output": files[0], "errors": files[1]}
        status, = self.statuses([process], timeout)
        texts = [pathlib.Path(file).read_text(errors="replace") for file in files]
        return subprocess.CompletedProcess(list(arguments), status, *texts)

    def call(self, folder, *arguments):
        return self.run([(folder, arguments, {})])[0]

    def close(self):
        if self.server:
            self.server.stdin.close()
            self.server.wait(20)
