"""What a run says is on the disk is there, and what could not be brought there is told.

The members are the calls that a save, a save that removes an older checkpoint, and an export make to bring files to the disk
(tests/faults/failing_calls.cpp): a run is listed, and then each of its calls fails once. tests/unit/checkpoint/durability_test.cpp walks all of them in one process.
"""
import errno
import os
import random
import shutil
import subprocess

import pytest
from commands import run, told
from engine import TINY_MODELS, set_arguments, write_tokens
from failing_calls import Call, Counter

OPERATIONS = ("save", "export")
CALLS = ("fsync", "fdatasync", "rename", "renameat2", "mkdir", "fallocate", "symlink", "fcntl")
NOT_TOLD = {"symlink": errno.EPERM, "fcntl": errno.ENOLCK}  # what a file system may lack -> its error
DRAW = random.SystemRandom()


class Durable:
    def __init__(self, engine, folder):
        self.engine, self.counter, self.folder, self.lists = engine, Counter(folder), folder, {}
        write_tokens(folder / "tokens.bin", 2000)
        self.config = engine.write_config("durable.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": 8, **TINY_MODELS["gpt_neox"]}, "data": {"path": folder / "tokens.bin"},
            "train": {"steps": 2, "global_batch": 1}, "learning_rate": {"base": 1e-3}})

    def words(self, operation, target):
        settings = [f"checkpoint.path={target}", "checkpoint.every=1", "checkpoint.keep=1"] if operation == "save" else []
        return ["train", self.config, "--quiet", *(["--export", target] if operation == "export" else []), *set_arguments(settings)]

    def strata(self, *words, **environment):
        return run([self.engine.strata, *words], env={**self.engine.environment, **{name: str(value) for name, value in environment.items()}})

    def calls(self, operation):
        """Each call and its path, in order."""
        if operation not in self.lists:
            target, listed = self.folder / f"listed {operation}", self.folder / f"{operation}.list"
            done = self.strata(*self.words(operation, target), **self.counter.begin(), FAILING_FOLDER=target, FAILING_LIST=listed)
            assert done.returncode == 0, told(done)
            self.lists[operation] = [Call.listed(line) for line in listed.read_text().splitlines()]
        return self.lists[operation]

    def fail(self, call, error, *words):
        """`strata` with these words, in which `call` fails."""
        return self.strata(*words, **self.counter.begin(call, error))


@pytest.fixture(scope="module")
def durable(engine, folder):
    return Durable(engine, folder)


def of_folders(listed):
    """The calls whose path is a folder."""
    return [call for call, path in listed if os.path.basename(path).startswith(("step-", "listed "))]


def steps(folder):
    return sorted(int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdigit())


# One flush of a folder of each, and the lock, by default.
DEFAULT = {("save", "fsync"), ("export", "fsync"), ("save", "fcntl")}


@pytest.mark.parametrize("operation, call", [pytest.param(operation, call, marks=[] if (operation, call) in DEFAULT else pytest.mark.full)
                                             for operation in OPERATIONS for call in CALLS])
def test_a_failing_call_is_reported(durable, tmp_path, operation, call, request):
    listed = durable.calls(operation)
    made = [one for one, _ in listed if one.name in (call, call + "64")]
    if not made:
        assert (operation, call) in {("export", "fdatasync"), ("export", "symlink"), ("save", "fdatasync"), ("export", "renameat2")}, listed
        return
    if not request.config.getoption("--full"):
        made = [DRAW.choice([one for one in made if one in of_folders(listed)] or made)]
    for number, one in enumerate(made):
        target = tmp_path / f"{number}"
        done = durable.fail(one, NOT_TOLD.get(call, errno.EIO), *durable.words(operation, target))
        where = f"{one}, {dict(listed)[one]}: {told(done)}"
        if call in NOT_TOLD:
            assert done.returncode == 0, where
            if operation == "save":
                assert call != "fcntl" or "has no locks" in done.stderr, where
                assert steps(target) == [2], where
                assert durable.strata("checkpoint", "info", target).returncode == 0
            continue
        assert done.returncode in (2, 3) and "Input/output error" in done.stderr, where
        if operation == "save" and steps(target):
            info = durable.strata("checkpoint", "info", target)
            assert info.returncode == 0, told(info)
        assert operation == "save" or call == "fsync" or not target.exists(), where


@pytest.mark.parametrize("error", ["EINVAL", *(pytest.param(error, marks=pytest.mark.full) for error in ("EOPNOTSUPP", "EROFS", "EACCES"))])
def test_a_file_system_that_cannot_flush_folders_is_used(durable, tmp_path, error):
    call = next(call for call in of_folders(durable.calls("export")) if call.name == "fsync")
    done = durable.fail(call, getattr(errno, error), *durable.words("export", tmp_path / "export"))
    assert done.returncode == 0, told(done)


HOLDER = """
import fcntl, struct, sys, time
file = open(sys.argv[1], "w")
fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
file.write("host elsewhere, process 7, run r\\n"); file.flush(); print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("namespaces", [pytest.param([], marks=pytest.mark.full), ["unshare", "--pid", "--uts", "--mount", "--fork", "--map-root-user"]], ids=["process", "namespaces"])
def test_a_folder_is_one_runs_alone(durable, tmp_path, namespaces):
    """Against a process of this host, and of what cannot be told from another one; its temporaries stay."""
    if namespaces and (not shutil.which("unshare") or subprocess.run([*namespaces, "true"], capture_output=True).returncode != 0):
        pytest.skip("namespaces cannot be made here")
    theirs = tmp_path / f"step-1.{'1' * 32}.tmp"
    theirs.mkdir()
    holder = subprocess.Popen([*namespaces, "python3", "-c", HOLDER, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    done = durable.strata(*durable.words("save", tmp_path))
    assert done.returncode == 2 and "another run is saving its checkpoints here (host elsewhere, process 7, run r)" in done.stderr, told(done)
    holder.communicate()
    done = durable.strata(*durable.words("save", tmp_path))
    assert done.returncode == 0 and theirs.exists() and str(theirs) in done.stderr, told(done)
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-2", theirs.name}


def test_latest_may_be_a_file(durable, tmp_path):
    call = next(call for call, _ in durable.calls("save") if call.name == "symlink")
    folder = tmp_path / "checkpoints"
    words = durable.words("save", folder)
    done = durable.fail(call, errno.EPERM, *words, "--set", "train.steps=1")
    assert done.returncode == 0 and (folder / "latest").read_text() == "step-1\n", told(done)
    assert '"step": 1' in durable.strata("checkpoint", "info", folder / "latest", "--format", "json").stdout
    done = durable.strata(*words, "--resume", folder / "latest")
    assert done.returncode == 0 and os.readlink(folder / "latest") == "step-2", told(done)
    assert (folder / "latest").is_symlink()
