#!/usr/bin/env python3
"""What `strata` says of a wrong command line, a machine that is too small, a run that is stopped or killed: who reads it knows what to do.

messages.py --strata PATH --plugins DIR [--work DIR] [--only NAME]
"""
import argparse
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import TINY_MODELS, write_tokens  # noqa: E402

DEADLINE = 120
ADVICE = "`strata plan` shows"


class Messages:
    def __init__(self, options):
        self.options, self.work = options, os.path.abspath(options.work)
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": os.path.abspath(options.plugins), "OMP_NUM_THREADS": "1"}
        os.makedirs(self.work)
        write_tokens(os.path.join(self.work, "tokens.bin"))
        self.config = os.path.join(self.work, "run.yaml")
        model, sizes = next(iter(TINY_MODELS.items()))
        with open(self.config, "w") as file:
            file.write("device: cpu\nmodel: {plugin: %s, seq_len: 32, %s}\n" % (model, ", ".join(f"{key}: {value}" for key, value in sizes.items())))
            file.write(f"data: {{path: {os.path.join(self.work, 'tokens.bin')}}}\ntrain: {{steps: 2, global_batch: 2}}\nlearning_rate: {{base: 1e-3}}\n")

    def path(self, name):
        return os.path.join(self.work, name)

    def strata(self, *arguments, environment=(), **options):
        """Exit status, and what was said on both outputs."""
        done = subprocess.run([self.options.strata, *arguments], env={**self.environment, **dict(environment)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, cwd=self.work, **options)
        return done.returncode, done.stdout

    def expect(self, status, texts, *arguments, **options):
        found, said = self.strata(*arguments, **options)
        missing = [text for text in texts if text not in said]
        if found != status or missing or "internal error" in said:
            raise AssertionError(f"{' '.join(arguments)}: exit status {found}, does not say {missing}: {said}")
        return said

    def on_terminal(self, *arguments, environment=(), signalled=None):
        """Everything that a terminal gets; with `signalled`, SIGINT is sent when that is seen."""
        ours, theirs = pty.openpty()
        run = subprocess.Popen([self.options.strata, *arguments], env={**self.environment, **dict(environment)}, stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=theirs, cwd=self.work, start_new_session=True)
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
                run.send_signal(signal.SIGINT)
        run.kill()
        run.wait()
        os.close(ours)
        return seen.decode()

    # Tests.

    def unknown_command(self):
        self.expect(2, ["no command 'trian': did you mean train?"], "trian", self.config)
        self.expect(2, ["strata data has no command 'pakc': did you mean pack?"], "data", "pakc")

    def swapped_export(self):
        self.expect(0, [], "train", self.config, "--set", "checkpoint.path=saved", "--quiet")
        said = self.expect(2, ["the checkpoint comes first: strata checkpoint export saved weights"], "checkpoint", "export", "weights", "saved")
        said += self.expect(2, ["holds checkpoints of a run"], "train", self.config, "--export", "saved")
        if "remove" in said:
            raise AssertionError(f"advises to remove checkpoints: {said}")
        self.expect(0, [], "checkpoint", "export", "saved", "weights")

    def plugin_by_path(self):
        """A checkpoint names a plugin, not where the run found it; what the config itself names is the user's."""
        plugin = os.path.join(os.path.abspath(self.options.plugins), "libstrata_model_gpt_neox.so")
        self.expect(0, [], "train", self.config, "--set", "checkpoint.path=named", "--set", f"model.plugin={plugin}", "--quiet")
        with open(self.path("named/step-2/checkpoint.json")) as file:
            saved = file.read()
        if plugin in saved or '"plugin_path"' in saved or '"model.plugin": "gpt_neox"' not in saved:
            raise AssertionError(f"the checkpoint says where a library lies: {re.findall('.*plugin.*', saved)}")
        self.expect(0, [], "checkpoint", "export", "named", "exported")
        self.expect(0, [], "train", self.config, "--set", "checkpoint.path=named", "--set", "train.steps=3", "--set", f"model.plugin={plugin}",
                    "--resume", "--quiet")

    def memory_without_unit(self):
        self.expect(2, ["--memory is '12', which is 12 bytes", "12GB"], "plan", self.config, "--memory", "12")

    def out_of_memory(self):
        self.expect(3, ["out of memory: ", "were requested at once", ADVICE], "train", self.config, "--set", "train.micro_batch=1000000000",
                    "--set", "train.global_batch=auto")

    def few_files(self):
        few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))}
        self.expect(3, ["open files", "`ulimit -n` is 12"], "train", self.config, "--nproc", "2", **few)

    def many_ranks(self):
        ranks = str(17 * len(os.sched_getaffinity(0)))
        batch = ["--set", "train.micro_batch=1", "--set", "train.global_batch=auto"]
        for command in (["train", self.config, *batch], ["launch"], ["bench", "communicator/shm"]):
            self.expect(2, [f"--nproc is {ranks}", "16 per core", "--oversubscribe"], *command, "--nproc", ranks, *(["true"] if command == ["launch"] else []))
        self.expect(0, [], "launch", "--nproc", ranks, "--oversubscribe", "true")

    def killed(self):
        said = self.expect(137, ["rank 1 of 2 failed (killed by signal 9", "memory", ADVICE], "launch", "--nproc", "2", "sh", "-c",
                           "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 9")
        if "limit" not in said and "are free on this host" not in said:
            raise AssertionError(f"says nothing of how much memory there is: {said}")

    def once(self):
        """A failure of all ranks is said once."""
        said = self.expect(2, ["Its last words are above"], "train", self.config, "--nproc", "2", "--export", "nowhere/deep")
        if said.count("nowhere/deep") != 1:
            raise AssertionError(f"says it {said.count('nowhere/deep')} times: {said}")

    def local_rank(self):
        here = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        self.expect(0, [], "train", self.config, "--quiet", environment=here)

    def pipes_of_mpirun(self):
        """mpirun gives rank 0 a terminal and copies what is written there to its own output."""
        rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        seen = self.on_terminal("train", self.config, environment=rank)
        if "\033" in seen or "step 2/2" not in seen:
            raise AssertionError(f"escape codes, or no step: {seen!r}")
        if "\033[K" not in self.on_terminal("train", self.config):
            raise AssertionError("no bar is drawn on a terminal of ours")

    def asked_to_stop(self):
        """The answer to a signal stands on a line of its own, not behind the bar."""
        for ranks in ([], ["--nproc", "2"]):
            seen = self.on_terminal("train", self.config, "--set", "train.steps=100000", *ranks, signalled=b"step 3/")
            before = re.search(r"([^\n]*)strata: asked to stop", seen)
            if not before or before[1].strip("\r"):
                raise AssertionError(f"stands behind '{before and before[1]}': {seen[-600:]!r}")

    def plan_difference(self):
        said = self.expect(0, ["at least ", "of the total are in no category"], "plan", self.config, "--set", "train.micro_batch=64", "--set", "train.global_batch=auto")
        if "total" not in said:
            raise AssertionError(said)

    def doctor(self):
        said = self.strata("doctor")[1]
        limit = "/sys/fs/cgroup/memory.max"
        limited = os.path.exists(limit) and open(limit).read().strip() != "max"
        if "memory available" not in said or (limited and "container's memory" not in said):
            raise AssertionError(said)

    def run(self):
        failures = 0
        tests = [self.unknown_command, self.swapped_export, self.plugin_by_path, self.memory_without_unit, self.out_of_memory, self.few_files,
                 self.many_ranks, self.killed, self.once, self.local_rank, self.plan_difference, self.doctor]
        if self.options.terminal:
            tests = [self.pipes_of_mpirun, self.asked_to_stop]
            try:
                for end in os.openpty():
                    os.close(end)
            except OSError as error:
                print(f"skipped: there is no terminal to be had here: {error}")
                return 77
        for test in tests:
            if self.options.only and self.options.only not in test.__name__:
                continue
            begin, wrong = time.monotonic(), None
            try:
                test()
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                wrong = str(error)
                failures += 1
            print(f"{'FAILED ' if wrong else 'passed '} {time.monotonic() - begin:5.1f} s  {test.__name__}", flush=True)
            if wrong:
                print(f"  {wrong}", flush=True)
        return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--plugins", required=True, help="the folder with its plugins")
    parser.add_argument("--work", help="where runs write; removed after a run without failures")
    parser.add_argument("--terminal", action="store_true", help="what stands on a terminal instead; exit status 77 where there is none")
    parser.add_argument("--only", metavar="TEXT", help="the tests whose name holds this")
    options = parser.parse_args()
    options.strata = os.path.abspath(options.strata)
    options.work = options.work or os.path.join(tempfile.mkdtemp(prefix="strata_messages_"), "work")
    shutil.rmtree(options.work, ignore_errors=True)
    status = Messages(options).run()
    if status == 0:
        shutil.rmtree(options.work, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
