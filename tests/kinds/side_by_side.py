"""Commands of `strata` side by side, each in a folder and an environment of its own."""
import concurrent.futures
import dataclasses
import os
import subprocess

import loaded_programs
from place import program


@dataclasses.dataclass
class Ended:
    status: int  # 128 and its number for a signal, -1 for a process that was late
    output: str

    def says(self):
        return f"exit status {self.status}: {self.output}"


class Commands:
    def __init__(self, plugins):
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": os.path.abspath(plugins), "OMP_NUM_THREADS": "1"}

    def run(self, processes, timeout=60):
        """`processes`: of each the folder that it runs in, its arguments and what its environment has beside the test's. The ended processes."""
        with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
            return list(pool.map(lambda process: self.ended(*process, timeout), processes))

    def ended(self, folder, arguments, environment, timeout):
        try:
            done = loaded_programs.run([program(), *map(str, arguments)], cwd=folder, env={**self.environment, **environment}, timeout=timeout,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as late:
            return Ended(-1, (late.stdout or b"").decode(errors="replace"))
        return Ended(done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout.decode(errors="replace"))

    def call(self, folder, *arguments):
        return self.run([(folder, arguments, {})])[0]
