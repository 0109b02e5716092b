"""Lacking resources of the machine are reported as such: standard streams that are closed, a full disk, no threads, no memory, a folder that is
gone. Nothing but a mistake in the code is an "internal error", and no command prints the inner words of a library."""
import errno
import itertools
import json
import os
import re
import resource
import signal
import subprocess

import pytest
from commands import told
from failing_calls import Call, Counter
from place import build_folder

FOREIGN_WORDS = ("internal error", "terminate called", "frame #", "/pytorch", "[c10d]", "Exception raised from", "json.exception", "filesystem error", "FATAL")
BASE = "device: cpu\nmodel: {plugin: gpt_neox, seq_len: 32, hidden_size: 40, layers: 1, heads: 4, vocabulary: 257}\ndata: {path: %s}\n" \
       "train: {steps: 2, global_batch: 2}\nlearning_rate: {base: 1e-3}\n"


class Shell:
    def __init__(self, strata, plugins, folder, tokens):
        self.strata, self.folder = strata, folder
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
        self.config = folder / "run.yaml"
        self.config.write_text(BASE % tokens)

    def run(self, *words, before=None, environment=(), cwd=None, **options):
        """The ended command; `before` runs in its process first."""
        done = subprocess.run([self.strata, *map(str, words)], capture_output=True, text=True, timeout=120, preexec_fn=before, cwd=cwd or self.folder,
                              env={**self.environment, **dict(environment)}, **options)
        self.check(done)
        return done

    def check(self, done):
        found = [word for word in FOREIGN_WORDS if word in done.stdout + done.stderr]
        assert not found, f"{found} in {told(done)}"

    def refused(self, *words, says, **options):
        done = self.run(*words, **options)
        assert done.returncode == 3 and says in done.stderr and len(done.stderr.splitlines()) <= 2, told(done)
        return done


@pytest.fixture(scope="module")
def shell(strata, plugins, folder, tokens):
    return Shell(strata, plugins, folder, tokens)


# --- closed streams --------------------------------------------------------------------------------------------------------------------

SUBSETS = [streams for count in (1, 2, 3) for streams in itertools.combinations((0, 1, 2), count)]
COMMANDS = {
    "train": ("train", "run.yaml", "--metrics", "metrics.jsonl"),
    "two ranks": ("train", "run.yaml", "--nproc", "2", "--metrics", "metrics.jsonl"),
    "save": ("train", "run.yaml", "--set", "checkpoint.path=saved", "--metrics", "metrics.jsonl", "--export", "weights"),
    "config": ("config", "show", "run.yaml"),
    "plugins": ("plugins", "list"),
    "plan": ("plan", "run.yaml"),
    "help": ("--help",),
    "pack": ("data", "pack", "run.yaml", "-o", "packed.bin", "--force"),
    "nothing": ("train", "none.yaml"),
}
CHEAP = [("two ranks", (0, 1, 2)), ("save", (1, 2)), ("config", (1,)), ("nothing", (2,))]


def members():
    for command, streams in itertools.product(COMMANDS, SUBSETS):
        marks = () if (command, streams) in CHEAP else pytest.mark.full
        yield pytest.param(command, streams, id=f"{command}-{''.join(map(str, streams))}", marks=marks)


@pytest.mark.parametrize("command, streams", members())
def test_closed_streams(shell, tmp_path, command, streams):
    """What is printed goes nowhere, and into no file of the run."""
    (tmp_path / "run.yaml").write_text(shell.config.read_text())
    kept = dict(os.environ, **shell.environment)

    def close():
        for stream in streams:
            os.close(stream)

    done = subprocess.run([shell.strata, *COMMANDS[command]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=close,
                          cwd=tmp_path, env=kept, timeout=120)
    assert done.returncode == (2 if command == "nothing" else 0), told(done)
    metrics = tmp_path / "metrics.jsonl"
    if "--metrics" in COMMANDS[command]:
        assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [1, 2]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"tokens/s" not in path.read_bytes(), f"{path} holds what was printed"


# --- lacking resources ----------------------------------------------------------------------------------------------------------------

def limit(name, value):
    return lambda: resource.setrlimit(name, (value, value))


def test_no_temporary_folder(shell):
    for words in (("verify", shell.config), ("compare", shell.config, "--vary", "optimizer.plugin=adamw,sgd"), ("bench", "data/nanogpt")):
        shell.refused(*words, says="TMPDIR is '/nosuch'", environment={"TMPDIR": "/nosuch"})


def test_working_folder_is_gone(shell, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {shell.strata} train {shell.config}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, env=shell.environment)
    shell.check(done)
    assert done.returncode == 3 and "the working folder cannot be used" in done.stderr, told(done)


def test_largest_file(shell):
    shell.refused("train", shell.config, "--quiet", "--set", "checkpoint.path=too_large", says="File too large", before=limit(resource.RLIMIT_FSIZE, 20 << 10))


def test_few_open_files(shell):
    for files in (10, 20):
        done = shell.run("train", shell.config, "--quiet", before=limit(resource.RLIMIT_NOFILE, files))
        assert done.returncode in (0, 2, 3, 127), told(done)


@pytest.mark.parametrize("mebibytes", [390, *(pytest.param(size, marks=pytest.mark.full) for size in (200, 300, 430, 450, 480, 600, 900, 1200))])
def test_little_memory(shell, mebibytes):
    """390: what libtorch's own start would end with std::bad_alloc."""
    done = shell.run("train", shell.config, "--quiet", before=limit(resource.RLIMIT_AS, mebibytes << 20))
    assert done.returncode in (0, 3) and (mebibytes > 480 or "ulimit -v" in done.stderr), told(done)


def test_an_output_without_a_reader(shell):
    """`strata ... | head -1` is no full disk."""
    for words in (("config", "reference"),):
        started = subprocess.Popen([shell.strata, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shell.environment,
                                   preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
        started.stdout.close()
        said = started.stderr.read().decode()
        assert started.wait() in (0, 141) and not said, said


def test_a_full_disk_is_reported(shell):
    with open("/dev/full", "w") as full:
        done = subprocess.run([shell.strata, "config", "show", str(shell.config)], stdout=full, stderr=subprocess.PIPE, text=True, env=shell.environment)
    assert done.returncode == 3 and "No space left on device" in done.stderr, told(done)


# --- each call that asks the system for something fails once ---------------------------------------------------------------------------

CALLS = ("pipe2", "pthread_create", "epoll_create1", "eventfd", "socket", "listen", "timerfd_create", "fork", "getrandom")
ERRNO = {"listen": errno.EACCES, "getrandom": errno.ENOSYS}
SAMPLE = {(0, "pthread_create", 0), (1, "listen", 0)}


@pytest.mark.parametrize("role, call, number", [pytest.param(role, call, number, marks=() if (role, call, number) in SAMPLE else pytest.mark.full)
                                                for call in CALLS for role in (0, 1) for number in range(6)])
def test_failing_call(shell, tmp_path, role, call, number):
    """Of the launcher (0) and of rank 0 (1)."""
    failing = Counter(tmp_path).begin(Call(role, call, number), ERRNO.get(call))
    done = shell.run("train", shell.config, "--quiet", "--nproc", "2", environment=failing)
    assert done.returncode in (0, 3), told(done)


# --- several hosts ---------------------------------------------------------------------------------------------------------------------

def test_no_words_of_libraries_between_ranks(shell):
    """Two ranks as torchrun starts them, of which one is told another config: what both print is Strata's."""
    ranks = []
    port = 20000 + os.getpid() % 20000
    for rank in range(2):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [shell.strata, "train", str(shell.config), "--quiet", "--set", f"learning_rate.base=1e-{rank + 3}"]
        ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**shell.environment, **variables}, cwd=shell.folder))
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [3, 3], said
    assert not [word for word in FOREIGN_WORDS if word in "".join(said)], said


# --- the stack is full -----------------------------------------------------------------------------------------------------------------

@pytest.mark.full
def test_a_full_stack_is_reported(shell):
    """With a stack of 64 KiB every run ends, and says something."""
    done = shell.run("train", shell.config, "--quiet", before=limit(resource.RLIMIT_STACK, 64 << 10))
    assert done.returncode == 0 or re.search("strata|libtorch", done.stderr), told(done)
    assert build_folder().exists()
