"""Commands of `strata` in forked processes of one program (command_server.cpp): a fraction of what it takes to start them."""
import dataclasses
import json
import os
import subprocess

from place import build_folder


@dataclasses.dataclass
class Ended:
    status: int
    output: str

    def says(self):
        return f"exit status {self.status}: {self.output}"


class CommandServer:
    def __init__(self, plugins, work):
        self.work, self.count = os.path.abspath(work), 0
        os.makedirs(self.work, exist_ok=True)
        environment = {**os.environ, "STRATA_PLUGIN_PATH": os.path.abspath(plugins), "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen([build_folder() / "libexec/strata/command_server"], env=environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)

    def run(self, processes, timeout=60):
        """`processes`: of each the folder that it runs in, its arguments and what its environment has beside the test's. The ended processes."""
        request = {"timeout_s": timeout, "processes": []}
        for folder, arguments, environment in processes:
            self.count += 1
            request["processes"].append({"arguments": [str(word) for word in arguments], "environment": environment,
                                         "folder": str(folder), "output": os.path.join(self.work, f"{self.count}.output")})
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        statuses = json.loads(self.server.stdout.readline())
        ended = []
        for status, process in zip(statuses, request["processes"], strict=True):
            with open(process["output"], errors="replace") as file:
                ended.append(Ended(status, file.read()))
        return ended

    def call(self, folder, *arguments):
        return self.run([(folder, arguments, {})])[0]

    def close(self):
        self.server.stdin.close()
        self.server.wait(20)
