"""Twice the ranks open at most 2.3 times the files of a checkpoint in all: counted, not timed.

More ranks, and readers of single ranges, in one process: tests/unit/checkpoint/growth_test.cpp.
"""
import pytest
from commands import run, told
from engine import TINY_MODELS, set_arguments, write_tokens
from failing_calls import Call, Counter

BOUND = 2.3
OPERATIONS = ("save", "resume", "resume on half")


class Growing:
    def __init__(self, engine, folder):
        self.engine, self.counter, self.folder, self.counts = engine, Counter(folder), folder, {}
        write_tokens(folder / "tokens.bin", 2000)
        self.config = engine.write_config("growing.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 8, **TINY_MODELS["gpt_neox"]}, "data": {"path": folder / "tokens.bin"},
            "train": {"steps": 1, "global_batch": 4}, "partitioner": "zero3", "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}})

    def opened(self, checkpoints, ranks, *words, steps=1):
        """Files of checkpoints that all ranks opened."""
        listed = self.folder / f"{checkpoints.name} {ranks} {steps}.list"
        done = run([self.engine.strata, "train", self.config, "--quiet", *words, *(["--nproc", ranks, "--oversubscribe"] if ranks > 1 else []),
                    *set_arguments([f"checkpoint.path={checkpoints}", f"train.steps={steps}"])],
                   env={**self.engine.environment, **self.counter.begin(), "FAILING_FOLDER": str(checkpoints), "FAILING_LIST": str(listed)})
        assert done.returncode == 0, told(done)
        return sum(Call.listed(line)[0].name.startswith("open") for line in listed.read_text().splitlines())

    def count(self, operation, ranks):
        if (operation, ranks) not in self.counts:
            checkpoints = self.folder / f"{operation} {ranks}"
            saved = self.opened(checkpoints, ranks)
            resuming = ranks if operation == "resume" else ranks // 2
            self.counts[operation, ranks] = saved if operation == "save" else self.opened(checkpoints, resuming, "--resume", steps=2)
        return self.counts[operation, ranks]


@pytest.fixture(scope="module")
def growing(engine, folder):
    return Growing(engine, folder)


@pytest.mark.parametrize("operation, ranks", [pytest.param(operation, ranks, marks=[] if (operation, ranks) == ("save", 1) else pytest.mark.full)
                                              for operation in OPERATIONS for ranks in (1, 2) if ranks > 1 or operation == "save"])
def test_twice_the_ranks(growing, operation, ranks):
    few, many = growing.count(operation, ranks), growing.count(operation, 2 * ranks)
    assert 0 < many <= BOUND * few, f"{few} opens of {ranks} ranks, {many} of {2 * ranks}"
