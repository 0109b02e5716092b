"""Ports and strangers. Once its ranks are connected, a run listens on the launcher's store only. The store answers only clients that know the run's
name, which another user cannot learn. No number of connections ends a run."""
import fcntl
import json
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import time

import pytest

from engine import TINY_MODELS, write_tokens

FILES = 128         # open files of each process of the run
CONNECTIONS = 400   # of strangers
PIPE_HOLDS = 4096 // 150  # steps; each writes a line longer than 150 bytes
NOBODY = 65534
COMMUNICATORS = ["gloo", pytest.param("shm", marks=pytest.mark.full)]


class Run:
    """Two ranks that train until they are asked to stop. They wait while nobody reads their metrics, and use no processor."""

    def __init__(self, strata, plugins, folder, communicator):
        write_tokens(folder / "tokens.bin")
        model, sizes = next(iter(TINY_MODELS.items()))
        (folder / "config.json").write_text(json.dumps({
            "device": "cpu", "model": {"plugin": model, "seq_len": 32, **sizes}, "data": {"path": str(folder / "tokens.bin")},
            "train": {"steps": 1_000_000, "global_batch": 8}, "learning_rate": {"base": 1e-3}, "communicator": {"plugin": communicator, "timeout_s": 20}}))
        os.mkfifo(folder / "metrics")
        self.metrics, self.errors = os.open(folder / "metrics", os.O_RDONLY | os.O_NONBLOCK), open(folder / "errors", "w+")
        fcntl.fcntl(self.metrics, fcntl.F_SETPIPE_SZ, 4096)
        self.process = subprocess.Popen(
            [strata, "train", folder / "config.json", "--quiet", "--nproc", "2", "--metrics", folder / "metrics"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.errors, env={**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)))
        self.wait_for_steps(1)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.ranks = [int(number) for number in children]
        variables = pathlib.Path(f"/proc/{self.ranks[0]}/environ").read_text().split("\0")
        self.variables = dict(variable.split("=", 1) for variable in variables if "=" in variable)
        self.name = f"{self.variables['TORCHELASTIC_RUN_ID']}/{self.variables['TORCHELASTIC_RESTART_COUNT']}"

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def read_steps(self):
        """The number of lines that were written since the last call."""
        ready = select.select([self.metrics], [], [], 0.02)[0]
        lines = os.read(self.metrics, 4096).count(b"\n") if ready else 0
        if not lines:
            time.sleep(0.02)  # the other end is not open yet, or closed again
        return lines

    def wait_for_steps(self, more):
        """Until it has made this number of steps more than the pipe holds."""
        deadline, steps = time.monotonic() + 60, -PIPE_HOLDS
        while steps < more:
            assert self.process.poll() is None and time.monotonic() < deadline, f"status {self.process.poll()}: {self.said()}"
            steps += self.read_steps()

    def store(self):
        return self.variables["MASTER_ADDR"], int(self.variables["MASTER_PORT"])

    def end(self):
        self.process.terminate()
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read_steps()
        return self.process.poll()


@pytest.fixture(scope="module", params=COMMUNICATORS)
def run(request, strata, plugins, tmp_path_factory):
    made = Run(strata, plugins, tmp_path_factory.mktemp("strangers"), request.param)
    yield made
    made.process.kill()
    made.process.wait()
    made.errors.close()
    os.close(made.metrics)


def ports(process):
    """Those at which a process accepts connections: (address, port) as /proc writes them."""
    sockets = {os.readlink(entry) for entry in pathlib.Path(f"/proc/{process}/fd").iterdir() if entry.is_symlink()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:]]
    return [tuple(int(part, 16) for part in line[1].split(":")) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_listens_nowhere(run, rank):
    assert ports(run.ranks[rank]) == []


def test_the_launcher_listens_at_the_loopback_address_only(run):
    address, port = run.store()
    assert ports(run.process.pid) == [(struct.unpack("=I", socket.inet_aton(address))[0], port)] and address == "127.0.0.1"


def test_strangers_do_not_end_the_run(run):
    """Ten times as many connections as files that the run's processes may open."""
    connections = []
    try:
        for process in (run.process.pid, *run.ranks):
            for _, port in ports(process):
                for _ in range(CONNECTIONS):
                    connections.append(socket.socket())
                    connections[-1].setblocking(False)
                    connections[-1].connect_ex(("127.0.0.1", port))
        run.wait_for_steps(1)
    finally:
        for connection in connections:
            connection.close()


# --- another user of the host ----------------------------------------------------------------------------------------------------------


def as_nobody(attempt):
    """What `attempt()` returns in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, repr(attempt()).encode()[:60_000])
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        found = file.read().decode()
    os.waitpid(child, 0)
    return found


def text(value):
    return struct.pack("=Q", len(value)) + value.encode()


VALIDATE, COUNT_KEYS, PING = struct.pack("=BI", 0, 0x3C85F7CE), b"\x07", struct.pack("=BI", 13, 1)


def set_key(key, value):
    return b"\x01" + text(key) + text(value)


def ask(run, *requests, enough=1000):
    """What the store answers to requests on one connection, until it says no more, or `enough` bytes."""
    with socket.create_connection(run.store(), timeout=2) as connection:
        connection.sendall(b"".join(requests))
        answer = b""
        try:
            while len(answer) < enough and (more := connection.recv(enough)):
                answer += more
        except OSError:  # it says no more, or has closed the connection
            pass
        return answer


def verdict(run):
    return set_key(f"/strata/{run.name}/1/board/verdict", json.dumps({"cause": "a stranger's", "table": "", "by": -1}))


def read_each(run, name):
    """A file of /proc of each process of the run."""
    found = []
    for process in (run.process.pid, *run.ranks):
        try:
            found.append(pathlib.Path(f"/proc/{process}/{name}").read_bytes())
        except PermissionError:
            pass
    return found


def signal_each(run):
    return [os.kill(process, signal.SIGTERM) for process in (run.process.pid, *run.ranks)]


# What another user tries, and what comes of it.
ATTEMPTS = {
    "reads their variables": (lambda run: read_each(run, "environ"), []),
    "reads the run's name in their command lines": (lambda run: any(run.name.split("/")[0].encode() in line for line in read_each(run, "cmdline")), False),
    "signals them": (signal_each, PermissionError),
    "counts keys as c10d's client does": (lambda run: ask(run, VALIDATE, PING, COUNT_KEYS), b""),
    "counts keys without a greeting": (lambda run: ask(run, COUNT_KEYS), b""),
    "counts keys of another run": (lambda run: ask(run, VALIDATE, set_key("strata/run/nproc/0", ""), PING, COUNT_KEYS), b"0THR"),
    "ends the run as c10d's client would": (lambda run: ask(run, VALIDATE, PING, verdict(run), PING), b""),
    "ends the run under another name": (lambda run: ask(run, VALIDATE, set_key("strata/run/run/0", ""), PING, verdict(run), PING), b"0THR"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("name", ATTEMPTS)
def test_another_user(run, name):
    attempt, expected = ATTEMPTS[name]
    found = as_nobody(lambda: attempt(run))
    assert found.startswith("PermissionError") if expected is PermissionError else found == repr(expected), found
    assert run.process.poll() is None, run.said()


def test_the_store_answers_those_who_know_the_name(run):
    """The attempts above are refused for their names only."""
    answer = ask(run, VALIDATE, set_key(f"strata/run/{run.name}", ""), PING, COUNT_KEYS, enough=12)
    assert len(answer) == 12 and struct.unpack("=Iq", answer)[1] > 2, answer


def test_strangers_do_not_change_the_end(run):
    run.wait_for_steps(1)
    assert run.end() == 143 and "strata: stopped by SIGTERM after step " in run.said(), run.said()
