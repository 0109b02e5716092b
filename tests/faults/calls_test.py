"""Each call of libc that a training, its checkpoints, its export and its resume make fails once, or its process is killed there. The run ends
as if nothing had been, or with a sentence and exit status 2 or 3, and the same command goes on from the latest checkpoint.

The full campaign takes up to MOST calls of each kind and role. The default run draws a few of them by --seed."""
import contextlib
import dataclasses
import os
import random
import re
import shutil

import pytest
from engine import read_weights, relative_difference
from failing_calls import Counter, cases
from layouts import DDP, ZERO3
from runs import Run
from traces import Traces, temporaries

MOST = 4       # calls of one kind and role in the full campaign
SAMPLE = 6     # cases of the default run
STEPS = ["train.steps=6", "checkpoint.every=2", "communicator.timeout_s=8"]
SETUPS = {"1 rank": (1, DDP), "2 ranks, shm": (2, ZERO3 + ["communicator.plugin=shm"]), "2 ranks, gloo": (2, ZERO3 + ["communicator.plugin=gloo"])}
# Without their memory libraries of mathematics take other ways, which round in another order.
MEMORY = {"malloc", "posix_memalign", "mmap", "mmap64"}
OTHER_WAY = "Error in cpuinfo"  # what libtorch prints before it takes the instructions of any processor
# Where it fails while gloo begins a group, gloo's destructors end the process, which no handler of ours can turn back.
ABORTS_IN_GLOO = "epoll_ctl"
# What no user is to read: an abort, an error of ours, the inner words and stack traces of a library.
INNER = re.compile(r"internal error|terminate called|frame #\d|Exception raised from|json\.exception|what\(\):|/pytorch/|core/\w+/\w+\.cpp:\d+")


@dataclasses.dataclass
class Outcome:
    losses: list
    weights: dict


class Campaign:
    def __init__(self, faults):
        self.faults, self.machine = faults, faults.machine
        self.counter = Counter(self.machine.new_folder())
        self.references, self.counted, self.stopped = {}, {}, {}

    def start(self, setup, folder, export, resume=None):
        ranks, settings = SETUPS[setup]
        return Run(self.machine, settings + STEPS + [f"checkpoint.path={folder}"], ranks, resume=resume, export=export, slow=False)

    def paths(self):
        place = self.machine.new_folder()
        return os.path.join(place, "checkpoints"), os.path.join(place, "weights")

    @contextlib.contextmanager
    def counting(self, call=None, kills=False):
        """Runs that start meanwhile count from 0, and fail in `call`."""
        environment = self.counter.begin(call, kills=kills)
        self.machine.environment.update(environment)
        try:
            yield
        finally:
            for name in environment:
                del self.machine.environment[name]

    def prepared(self, setup):
        """The undisturbed run, and how often it and a resumed one make each call."""
        if setup not in self.references:
            folder, export = self.paths()
            with self.counting():
                run = self.faults.expect(self.start(setup, folder, export), 0)
            self.references[setup] = Outcome(run.summary["losses"], weights_of(export))
            trained, _ = self.counter.counts()
            go_back(folder)
            self.stopped[setup] = folder
            with self.counting():
                self.faults.expect(self.start(setup, self.copy(folder), self.paths()[1], resume="latest"), 0)
            self.counted[setup] = {"train": trained, "resume": self.counter.counts()[0]}
        return self.counted[setup]

    def copy(self, checkpoints):
        folder, _ = self.paths()
        shutil.copytree(checkpoints, folder, symlinks=True)
        return folder

    def judge(self, setup, phase, call, kills):
        """What is wrong with the run in which `call` fails, in words; nothing if all is well."""
        folder, export = self.paths()
        resume = "latest" if phase == "resume" else None
        if resume:
            folder = self.copy(self.stopped[setup])
        with self.counting(call, kills):
            run = self.start(setup, folder, export, resume=resume)
            try:
                status = run.finish()
            except RuntimeError as late:
                return str(late)
        wrong = list(self.wrong_of(run, status, call, setup, export, kills))
        left = [] if kills else Traces(self.machine.mark, os.path.dirname(folder)).left() + temporaries(os.path.dirname(export))
        named = re.findall(r"^warning: (\S+): cannot be removed", run.output, re.MULTILINE)
        wrong += [line for line in left if not any(path in line for path in named)]
        if status != 0:
            wrong += self.wrong_afterwards(setup, folder, export)
        return "\n".join([*wrong, *beginning(run.output)]) if wrong else None

    def wrong_of(self, run, status, call, setup, export, kills):
        fine = {0, 2, 3} | ({137} if kills else set())
        aborted = call.name == ABORTS_IN_GLOO and "gloo" in setup and "a library ended the program" in run.output
        if status not in fine and not aborted:
            yield f"exit status {status}"
        elif status == 0:
            yield from self.wrong_result(run.summary["losses"], setup, export, call.name in MEMORY or OTHER_WAY in run.output)
        elif "strata: " not in run.output and not (kills and call.role == 0):  # a launcher that is killed prints nothing
            yield "ends without a sentence"
        if found := INNER.search(run.output):
            yield f"says '{found[0]}'"
        if status != 0 and os.path.exists(os.path.join(export, "config.json")):
            try:
                if weights_of(export) != self.references[setup].weights:
                    yield "the export under its name is another"
            except (OSError, ValueError, KeyError) as error:
                yield f"half an export is under its name: {error}"

    def wrong_result(self, losses, setup, export, rounded=False):
        reference = self.references[setup]
        wanted = reference.losses[len(reference.losses) - len(losses):]
        if losses != wanted and not (rounded and relative_difference(losses, wanted) < 1e-4):
            yield f"losses are {losses} instead of {wanted}"
        if weights_of(export) != reference.weights and not rounded:
            yield "exports other weights"

    def wrong_afterwards(self, setup, folder, export):
        """The same command goes on, to the same end, and removes what a killed run left."""
        again = os.path.join(self.machine.new_folder(), "weights") if os.path.exists(export) else export
        run = self.start(setup, folder, again, resume="latest")
        status = run.finish()
        if status != 0:
            yield f"cannot be resumed, exit status {status}: {run.output}"
        else:
            yield from self.wrong_result(run.summary["losses"], setup, again)


def go_back(folder):
    """To step 4, as if the run had been killed after it."""
    os.unlink(os.path.join(folder, "latest"))
    os.symlink("step-4", os.path.join(folder, "latest"))
    shutil.rmtree(os.path.join(folder, "step-6"))


def beginning(output):
    """Without the stack traces of libraries."""
    return [line[:300] for line in output.splitlines() if "frame #" not in line][:30]


def weights_of(folder):
    return {name: values.tobytes() for name, values in read_weights(folder).items()}


@pytest.fixture(scope="module")
def campaign(faults):
    return Campaign(faults)


def check(campaign, drawn, setup, phase, kills):
    """All bad cases in one report, so that one does not hide another."""
    bad = {}
    for call in drawn:
        if found := campaign.judge(setup, phase, call, kills):
            bad[str(call)] = found
        campaign.machine.end_runs()
    if bad:
        pytest.fail(f"{setup}, {phase}{', killed' if kills else ''}: {len(bad)} of {len(drawn)} calls are bad\n"
                    + "\n".join(f"== {call}\n{text}" for call, text in bad.items()))


def test_sample(campaign, seed):
    """Calls of a run of one rank and of one of the others, drawn."""
    draw = random.Random(seed)
    setups = ["1 rank", draw.choice(list(SETUPS)[1:])]
    for number in range(SAMPLE):
        setup = setups[number % 2]
        phase, kills = draw.choice(("train", "resume")), number % 4 == 3
        call = draw.choice(cases(campaign.prepared(setup)[phase], MOST))
        check(campaign, [call], setup, phase, kills)


@pytest.mark.full
@pytest.mark.parametrize("kills", [False, True], ids=["fails", "killed"])
@pytest.mark.parametrize("phase", ["train", "resume"])
@pytest.mark.parametrize("setup", SETUPS)
def test_every_call(campaign, setup, phase, kills):
    counted = campaign.prepared(setup)[phase]
    print(f"{sum(counted.values())} calls of {len(counted)} kinds and roles")
    check(campaign, cases(counted, 1 if kills else MOST), setup, phase, kills)
