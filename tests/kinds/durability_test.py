"""What a run says is on the disk is there, and what could not be brought there is told.

The members are the calls that a save, a save that removes an older checkpoint, and an export make to bring files to the disk: a run is listed,
and then each of its calls fails once. tests/unit/checkpoint/durability_test.cpp walks all of them in one process.
"""
import errno
import os
import random
import shutil
import subprocess

import pytest
from commands import run, told
from engine import TINY_MODELS, set_arguments, write_tokens

OPERATIONS = ("save", "export")
CALLS = ("fsync", "fdatasync", "rename", "renameat2", "mkdir", "fallocate", "symlink", "lock")
NOT_TOLD = {"symlink": errno.EPERM, "lock": errno.ENOLCK}  # what a file system may lack -> its error
DRAW = random.SystemRandom()


class Durable:
    def __init__(self, engine, build, folder):
        self.engine, self.shim, self.folder, self.lists = engine, build / "lib/libfailing_call.so", folder, {}
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
        """NAME PATH of each call, in order."""
        if operation not in self.lists:
            target, listed = self.folder / f"listed {operation}", self.folder / f"{operation}.list"
            done = self.strata(*self.words(operation, target), LD_PRELOAD=self.shim, FAILING_FOLDER=target, FAILING_LIST=listed)
            assert done.returncode == 0, told(done)
            self.lists[operation] = listed.read_text().splitlines()
        return self.lists[operation]


@pytest.fixture(scope="module")
def durable(engine, build, folder):
    return Durable(engine, build, folder)


def of_folders(listed):
    """Numbers of the calls whose path is a folder."""
    return [number for number, line in enumerate(listed, 1) if os.path.basename(line.split(" ", 1)[1]).startswith(("step-", "listed "))]


def steps(folder):
    return sorted(int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdigit())


# One flush of a folder of each, and the lock, by default.
DEFAULT = {("save", "fsync"), ("export", "fsync"), ("save", "lock")}


@pytest.mark.parametrize("operation, call", [pytest.param(operation, call, marks=[] if (operation, call) in DEFAULT else pytest.mark.full)
                                             for operation in OPERATIONS for call in CALLS])
def test_a_failing_call_is_told(durable, tmp_path, operation, call, request):
    listed = durable.calls(operation)
    numbers = [number for number, line in enumerate(listed, 1) if line.split()[0] == call]
    if not numbers:
        assert (operation, call) in {("export", "fdatasync"), ("export", "lock"), ("export", "symlink"), ("save", "fdatasync"), ("export", "renameat2")}, listed
        return
    if not request.config.getoption("--full"):
        numbers = [DRAW.choice([number for number in numbers if number in of_folders(listed)] or numbers)]
    for number in numbers:
        target = tmp_path / f"{number}"
        done = durable.strata(*durable.words(operation, target), LD_PRELOAD=durable.shim, FAILING_FOLDER=target, FAILING_NUMBER=number,
                              FAILING_ERROR=NOT_TOLD.get(call, errno.EIO))
        where = f"call {number}, {listed[number - 1]}: {told(done)}"
        if call in NOT_TOLD:
            assert done.returncode == 0, where
            assert call != "lock" or "has no locks" in done.stderr, where
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
    listed = durable.calls("export")
    number = next(number for number in of_folders(listed) if listed[number - 1].startswith("fsync"))
    done = durable.strata(*durable.words("export", tmp_path / "export"), LD_PRELOAD=durable.shim, FAILING_FOLDER=tmp_path / "export",
                          FAILING_NUMBER=number, FAILING_ERROR=getattr(errno, error))
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
    call = next(number for number, line in enumerate(durable.calls("save"), 1) if line.startswith("symlink"))
    folder = tmp_path / "checkpoints"
    words = durable.words("save", folder)
    done = durable.strata(*words, "--set", "train.steps=1", LD_PRELOAD=durable.shim, FAILING_FOLDER=folder, FAILING_NUMBER=call,
                          FAILING_ERROR=errno.EPERM)
    assert done.returncode == 0 and (folder / "latest").read_text() == "step-1\n", told(done)
    assert '"step": 1' in durable.strata("checkpoint", "info", folder / "latest", "--format", "json").stdout
    done = durable.strata(*words, "--resume", folder / "latest")
    assert done.returncode == 0 and os.readlink(folder / "latest") == "step-2", told(done)
    assert (folder / "latest").is_symlink()
