"""Two hosts: namespaces of networks and processes, with a wire between them. Needs root and /dev/net/tun."""
import ctypes
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

from commands import call
from engine import TINY_MODELS, set_arguments, write_tokens
from wire import Wire

STEPS = 8
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
SIXTH = ["fd77::1", "fd77::2"]  # of IPv6
PORT = 29500
CLONE_NEWNET = 0x40000000
SPACES = ["unshare", "--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]  # of networks, processes and mounts


def missing():
    """Why there can be no hosts here, or an empty text."""
    if os.geteuid() != 0:
        return "needs root, for namespaces of networks"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    tried = subprocess.run([*SPACES, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"cannot make namespaces here: {tried.stderr.strip()}"


class Host:
    """Its first process holds the namespaces: when it is killed, the kernel kills all others."""

    def __init__(self, number, wire):
        self.number, self.address = number, ADDRESSES[number]
        self.holder = subprocess.Popen([*SPACES, "sleep", "3600"], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self.first() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.inner = self.first()
        call(["ip", "link", "set", wire.names[number], "netns", self.inner])
        peer = 1 - number
        for command in (["link", "set", "lo", "up"], ["addr", "add", f"{self.address}", "peer", f"{ADDRESSES[peer]}", "dev", wire.names[number]],
                        ["link", "set", wire.names[number], "mtu", "1400", "up"],
                        ["-6", "addr", "add", SIXTH[number], "peer", SIXTH[peer], "dev", wire.names[number], "nodad"]):
            call([*self.enter(), "ip", *command])

    def first(self):
        """The number of the first process inside."""
        try:
            with open(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children") as file:
                numbers = file.read().split()
            if numbers and os.readlink(f"/proc/{numbers[0]}/exe").endswith("sleep"):
                return numbers[0]
        except OSError:
            pass
        return None

    def enter(self):
        return ["nsenter", "-t", self.inner, "-n", "-p", "-m", "--"]

    def processes(self):
        """Of this host, without the one that holds it."""
        space, found = os.readlink(f"/proc/{self.inner}/ns/pid"), []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and name != self.inner and os.readlink(f"/proc/{name}/ns/pid") == space:
                    found.append(int(name))
            except OSError:
                pass
        return found

    def signal(self, number):
        for process in self.processes():
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.inner = None


class Rank:
    """One rank's process on a host. Rank 0's metrics go through a pipe that holds little: whoever does not read them holds up the run."""

    def __init__(self, hosts, host, rank, arguments, environment):
        self.number, self.output_file = rank, open(hosts.folder / f"output-{len(hosts.ranks)}", "w+")
        self.process = subprocess.Popen([*host.enter(), "env", *(f"{name}={value}" for name, value in environment.items()), hosts.strata, *arguments],
                                        env=hosts.environment, stdin=subprocess.DEVNULL, stdout=self.output_file, stderr=subprocess.STDOUT)

    @property
    def output(self):
        self.output_file.seek(0)
        return self.output_file.read()

    def inner(self):
        """The number of its process, as this test sees it."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            numbers = file.read().split()
        return int(numbers[0]) if numbers else self.process.pid


class Hosts:
    """Both hosts and the run on them."""

    def __init__(self, strata, plugins, folder, name):
        self.strata, self.folder = str(strata), folder
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
        self.ranks, self.lines, self.buffer = [], [], b""
        self.wire = Wire([f"{name}a", f"{name}b"])
        self.hosts = [Host(number, self.wire) for number in (0, 1)]
        model, sizes = next(iter(TINY_MODELS.items()))
        write_tokens(folder / "tokens.bin")
        self.config = folder / "config.json"
        self.config.write_text(json.dumps({
            "device": "cpu", "model": {"plugin": model, "seq_len": 32, **sizes}, "data": {"path": str(folder / "tokens.bin")},
            "train": {"steps": STEPS, "global_batch": 8, "seed": 3}, "learning_rate": {"base": 1e-3},
            "communicator": {"plugin": "gloo", "timeout_s": 6}}))
        os.mkfifo(folder / "metrics")
        self.pipe = os.open(folder / "metrics", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, 4096)

    def start(self, settings=(), a_host=1, address=None, only=(), more=None, steps=STEPS):
        """Starts the ranks of both hosts, or those of `only`. `more(rank)`: variables that a rank has in addition."""
        world = 2 * a_host
        for rank in only or range(world):
            host = self.hosts[rank // a_host]
            variables = {"RANK": rank, "LOCAL_RANK": rank % a_host, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": a_host,
                         "MASTER_ADDR": address or ADDRESSES[0], "MASTER_PORT": PORT, **(more(rank) if more else {})}
            arguments = ["train", str(self.config), "--quiet", "--metrics", str(self.folder / "metrics"),
                         "--summary", str(self.folder / "summary.json"), *set_arguments([f"train.steps={steps}", *settings])]
            self.ranks.append(Rank(self, host, rank, arguments, variables))
        return self.ranks

    def read_metrics(self, wait=0.05):
        if not select.select([self.pipe], [], [], wait)[0]:
            return
        data = os.read(self.pipe, 4096)
        if not data:
            time.sleep(wait)
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        self.lines += [json.loads(line) for line in lines]

    def wait_for_step(self, step, limit=60):
        """Until so many steps were made."""
        deadline = time.monotonic() + limit
        while len(self.lines) < step:
            assert time.monotonic() < deadline and self.ranks[0].process.poll() is None, self.said()
            self.read_metrics()

    def finish(self, limit, ranks=None, reads=True):
        """Until all ranks (or these) have ended, which must be within `limit` seconds. Seconds that each needed."""
        begin, seconds, left = time.monotonic(), {}, list(ranks or self.ranks)
        while left:
            for rank in [rank for rank in left if rank.process.poll() is not None]:
                seconds[rank.number] = time.monotonic() - begin
                left.remove(rank)
            late = [rank.number for rank in left]
            assert time.monotonic() - begin < limit, f"ranks {late} are there after {limit} s\n{self.said()}"
            if reads:
                self.read_metrics(0.02)
            else:
                time.sleep(0.02)
        print("ended after", ", ".join(f"rank {rank}: {after:.1f} s" for rank, after in sorted(seconds.items())))  # pytest -rP shows it
        return seconds

    def said(self):
        return "".join(f"--- rank {rank.number}, status {rank.process.poll()}\n{rank.output}" for rank in self.ranks)

    def expect_end(self, limit, *words, status=3, ranks=None, reads=True):
        """All ranks end in time, with this status, and a text that holds one of `words` and nothing of a library's."""
        self.finish(limit, ranks, reads)
        for rank in ranks or self.ranks:
            assert rank.process.returncode == status, self.said()
            assert any(word in rank.output for word in words), f"rank {rank.number} does not say {words}\n{self.said()}"
        self.check_words()

    def check_words(self):
        """No rank prints words that only those know who wrote a library."""
        for rank in self.ranks:
            assert not re.search(r"frame #|Exception raised|internal error|terminate called|\[c10d\]|\[/|hostname of the client", rank.output), self.said()

    def expect_losses(self, losses, limit):
        self.finish(limit)
        self.check_words()
        assert [rank.process.returncode for rank in self.ranks] == [0] * len(self.ranks), self.said()
        with open(self.folder / "summary.json") as file:
            assert json.load(file)["losses"] == losses, self.said()

    def freeze(self, number):
        self.hosts[number].signal(signal.SIGSTOP)

    def thaw(self, number):
        for rank in self.ranks:
            rank.process.send_signal(signal.SIGCONT)  # nsenter stops when the process that it started does
        self.hosts[number].signal(signal.SIGCONT)

    def run_in(self, number, function):
        """Starts a process on this host that calls `function`, and returns it."""
        child = os.fork()
        if child == 0:
            try:
                with open(f"/proc/{self.hosts[number].inner}/ns/net") as space:
                    assert ctypes.CDLL(None).setns(space.fileno(), CLONE_NEWNET) == 0
                function()
            finally:
                os._exit(0)
        return child

    def close(self):
        for rank in self.ranks:
            rank.process.kill()
        for host in self.hosts:
            host.close()
        for rank in self.ranks:
            rank.process.wait()
            rank.output_file.close()
        self.wire.close()
        os.close(self.pipe)


def server(address, port, answer=None):
    """Accepts connections for ever; answers each with `answer`, or not at all."""
    listening = socket.create_server((address, port))
    connections = []
    while True:
        connections.append(listening.accept()[0])
        if answer:
            connections[-1].recv(1000)
            connections[-1].sendall(answer)
