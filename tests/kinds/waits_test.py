"""No call blocks without a deadline. The sources are searched for every call that can wait; each stands in the table below with what bounds
it and the test that shows it. A call that is new, or that has no test, fails."""
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from engine import TINY_MODELS, write_tokens

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("core", "plugins", "sdk")
LEFT_OUT = ("sdk/template/",)  # projects to start from

# Calls that can block, by name. What stands before a name tells system calls from methods.
FREE = r"(?<![\w.>:~])(?:::)?"
CALLS = {
    "poll": FREE + r"p?poll\(", "epoll_wait": r"\bepoll_p?wait2?\(", "select": r"(?<![\w.>:~])::p?select\(",
    "connect": r"(?<![\w.>:~])::connect\(|(?:=|&&|if) \(?connect\(", "accept": FREE + r"accept4?\((?!const)",
    "recv": FREE + r"recv(?:msg|from|mmsg)?\((?!std|at)", "read": r"(?<![\w.>:~])::read\(|ssize_t \w+ = read\(",
    "waitpid": r"\b(?:waitpid|waitid|wait4)\(", "sigwait": r"\bsig(?:timedwait|wait|waitinfo|suspend)\(",
    "lock of a file": r"\bflock\(|F_(?:OFD_)?SETLKW", "name": r"\bgetaddrinfo\(|\bgetnameinfo\(", "futex": r"\bFUTEX_WAIT\b",
    "io_uring": r"io_uring_(?:enter|wait\w*|submit_and_wait)\b", "system": r"\bstd::system\(|\bpopen\(",
    "condition": r"(?:\.|->)wait\((?:lock|guard|held)\b", "condition with a limit": r"(?:\.|->)wait_(?:for|until)\((?!\*)",
    "work": r"(?:\.|->)wait\((?:kNoTimeout|no_deadline)\)", "join": r"(?<!board_)(?:\.|->)join\(\)",
    "store": r"\bstore_?->(?:get\w*|wait|check|compareSet|add|set|multi\w+|append)\(|\b(?:get|set)\(store,",
}

# What bounds a call, and the test that shows it.
BOUNDS = {
    "none": ("its limit is 0, or its descriptor does not block", None),
    "store": ("a request ends once the store was silent for communicator.timeout_s (store_client.hpp)",
              "no call waits for a store that accepts connections and never answers"),
    "start": ("communicator.timeout_s; a program that says nothing is told after 10 s", "an address of another program is an error that quotes its response"),
    "server": ("half a second; connections that do not greet are closed after 10 s", "the store serves only clients with the run's name"),
    "name": ("a thread of its own resolves, and is left behind when it is late", "test_ends_with_a_wrong_address"),
    "board": ("its own limit", "a rank that waits ends once its store is silent"),
    "verdict": ("the board's verdict aborts it (Board::watch)", "test_ends_on_both_sides_when"),
    "arena": ("100 ms, then it looks at its peers; the board's verdict aborts it", "test_stopped_process"),
    "nccl": ("communicator.timeout_s; needs GPUs", None),
    "launcher": ("a second; ranks that are stopped are ended, and those that cannot be killed are left behind after 10 s",
                 "a stopped rank ends the run in every state of the launcher"),
    "child": ("the child: a run ends by its own board, and with its parent", "test_children_end_with_their_parent"),
    "case": ("the deadline of a case of the conformance kit, which ends the case's processes", "test_hang"),
    "plugin": ("its own limit: a plugin's call that does not return is told", "test_shutdown_that_sleeps"),
    "disk": ("timeout_s of the plugin: a disk that does not answer ends the run", "test_stuck"),
    "threads": ("threads of this process, which compute and wait for nobody outside", None),
    "try": ("it does not wait (LOCK_NB)", None),
}

# (file, call): how many there are at most, and what bounds them.
PLACES = {
    ("core/engine/checkpoint/checkpoint_folder.cpp", "lock of a file"): (2, "try"),
    ("core/engine/checkpoint/folder_lock.cpp", "lock of a file"): (2, "try"),
    ("core/engine/checkpoint/hugging_face_export.cpp", "lock of a file"): (1, "try"),
    ("core/engine/group/address.cpp", "connect"): (1, "none"),  # of a datagram socket: sends nothing
    ("core/engine/group/address.cpp", "name"): (2, "name"),
    ("core/engine/group/address.cpp", "condition with a limit"): (1, "name"),
    ("core/engine/group/board.cpp", "condition with a limit"): (4, "board"),
    ("core/engine/group/board.cpp", "join"): (1, "board"),
    ("core/engine/group/board.cpp", "store"): (11, "store"),
    ("core/engine/group/group_factory.cpp", "work"): (1, "verdict"),
    ("core/engine/group/rendezvous.cpp", "store"): (11, "store"),
    ("core/engine/group/store_connection.cpp", "poll"): (1, "store"),
    ("core/engine/group/store_connection.cpp", "connect"): (1, "start"),
    ("core/engine/group/store_connection.cpp", "recv"): (2, "none"),
    ("core/engine/group/store_server.cpp", "epoll_wait"): (1, "server"),
    ("core/engine/group/store_server.cpp", "accept"): (1, "none"),
    ("core/engine/group/store_server.cpp", "recv"): (1, "none"),
    ("core/engine/group/store_server.cpp", "join"): (1, "server"),
    ("core/engine/plugins/shutdown_watch.cpp", "condition with a limit"): (1, "plugin"),
    ("core/engine/plugins/shutdown_watch.cpp", "join"): (1, "plugin"),
    ("core/engine/memory/through_host.cpp", "condition"): (1, "threads"),
    ("core/engine/memory/through_host.cpp", "join"): (1, "threads"),
    ("core/tools/ranks/rank_process.cpp", "waitpid"): (4, "launcher"),
    ("core/tools/ranks/rank_process.cpp", "read"): (1, "none"),
    ("core/tools/ranks/run_ranks.cpp", "poll"): (1, "launcher"),
    ("core/tools/ranks/signal_reader.cpp", "read"): (1, "none"),
    ("plugins/communicator/gloo/broken_pipe.hpp", "sigwait"): (1, "none"),
    ("plugins/communicator/gloo/gloo_wire.cpp", "work"): (1, "verdict"),
    ("plugins/communicator/nccl/nccl_communicator.cpp", "condition with a limit"): (1, "nccl"),
    ("plugins/communicator/shm/arena.cpp", "futex"): (1, "arena"),
    ("plugins/communicator/shm/arena.cpp", "store"): (8, "store"),
    ("plugins/communicator/shm/shm_pairs.cpp", "condition"): (1, "verdict"),
    ("plugins/communicator/shm/shm_pairs.cpp", "join"): (1, "verdict"),
    ("plugins/device/cuda/gpu_use.cpp", "condition with a limit"): (1, "threads"),
    ("plugins/device/cuda/gpu_use.cpp", "join"): (1, "threads"),
    ("plugins/offload/cpu/host_memory.cpp", "lock of a file"): (1, "try"),
    ("plugins/offload/nvme/blocks.cpp", "condition with a limit"): (1, "disk"),
    ("plugins/offload/nvme/thread_workers.cpp", "condition"): (1, "threads"),
    ("plugins/offload/nvme/thread_workers.cpp", "join"): (1, "disk"),
    ("plugins/offload/nvme/uring_worker.cpp", "io_uring"): (1, "disk"),
    ("plugins/offload/nvme/uring_worker.cpp", "join"): (1, "disk"),
    ("core/tools/bench/offload_bench.cpp", "join"): (1, "threads"),
    ("core/tools/compare/run_in_turns.cpp", "waitpid"): (2, "child"),
    ("core/tools/compare/run_in_turns.cpp", "read"): (1, "child"),
    ("sdk/conformance/communicator/peers.cpp", "connect"): (1, "case"),
    ("sdk/conformance/communicator/peers.cpp", "waitpid"): (1, "case"),
    ("sdk/conformance/communicator/drawn.cpp", "work"): (1, "case"),
    ("sdk/conformance/communicator/peers.cpp", "work"): (3, "case"),
    ("sdk/conformance/communicator/rank_threads.cpp", "condition"): (1, "case"),
    ("sdk/conformance/communicator/rank_threads.cpp", "condition with a limit"): (1, "case"),
    ("sdk/conformance/drawn/search.cpp", "waitpid"): (2, "case"),
    ("sdk/conformance/general/resource_cases.cpp", "waitpid"): (1, "case"),
    ("sdk/conformance/offload/drawn.cpp", "join"): (1, "case"),
    ("sdk/conformance/partitioner/carried_out.cpp", "condition with a limit"): (1, "case"),
    ("sdk/conformance/runner/run_case.cpp", "waitpid"): (3, "case"),
    ("sdk/conformance/runner/run_case.cpp", "sigwait"): (1, "case"),
    ("sdk/conformance/scheduler/drawn.cpp", "waitpid"): (1, "case"),
    ("core/tools/data/in_order.hpp", "condition"): (1, "threads"),
    ("core/tools/data/in_order.hpp", "join"): (1, "threads"),
    ("sdk/fakes/src/local_board.cpp", "condition with a limit"): (1, "case"),
    ("sdk/fakes/src/local_group.cpp", "join"): (1, "case"),
    ("core/tools/verify/ticker.cpp", "condition with a limit"): (1, "threads"),
    ("core/tools/verify/ticker.cpp", "join"): (1, "threads"),
    ("sdk/toolbox/src/host_backend.cpp", "condition"): (1, "verdict"),
    ("sdk/toolbox/src/host_backend.cpp", "join"): (1, "verdict"),
}


def sources():
    for folder in FOLDERS:
        for file in sorted((REPOSITORY / folder).rglob("*.[ch]pp")):
            name = str(file.relative_to(REPOSITORY))
            if not name.startswith(LEFT_OUT):
                yield name, re.sub(r"//[^\n]*", "", file.read_text())


def found():
    """Every call in the sources: (file, call) -> number."""
    return {(name, call): count for name, text in sources() for call, pattern in CALLS.items() if (count := len(re.findall(pattern, text)))}


FOUND = found()


@pytest.mark.parametrize("place", sorted(FOUND), ids=": ".join)
def test_every_wait_has_a_deadline(place):
    count, bound = PLACES.get(place, (0, None))
    assert FOUND[place] <= count, f"give it a deadline, and name in this table what bounds it and the test that shows it: {place}"
    assert bound in BOUNDS


@pytest.mark.parametrize("bound", [name for name, (_, test) in BOUNDS.items() if test])
def test_every_deadline_has_a_test(bound):
    name = BOUNDS[bound][1]
    texts = [file.read_text() for pattern in ("*_test.py", "*_test.cpp") for file in (REPOSITORY / "tests").rglob(pattern)]
    assert any(f"def {name}(" in text or f'TEST_CASE("{name}"' in text for text in texts), f"there is no test {name}"
    assert any(of == bound for _, of in PLACES.values()), "nothing is bounded by it"


# --- children --------------------------------------------------------------------------------------------------------------------------

FORKS = [name for name, text in sources() if re.search(r"(?<![\w.>:])(?:::)?fork\(\)", text)]


@pytest.mark.parametrize("file", FORKS)
def test_a_child_is_killed_with_its_parent(file):
    text = re.sub(r"//[^\n]*", "", (REPOSITORY / file).read_text())
    forks, promises = (len(re.findall(pattern, text)) for pattern in (r"\bfork\(\)", r"PR_SET_PDEATHSIG, SIGKILL\)"))
    assert promises >= forks


class Family:
    """A command and all processes that it starts, which share a variable."""

    def __init__(self, arguments, environment):
        self.mark = f"STRATA_FAMILY={os.getpid()}.{time.monotonic_ns()}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen([str(word) for word in arguments], env={**environment, name: value}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def members(self):
        """Processes that are there, without the command itself and without zombies."""
        numbers = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and int(name) != self.process.pid and self.mark.encode() in pathlib.Path(f"/proc/{name}/environ").read_bytes():
                    numbers.append(int(name))
            except OSError:
                pass
        return numbers

    def wait_for_members(self, count, limit=60):
        deadline = time.monotonic() + limit
        while len(self.members()) < count:
            assert self.process.poll() is None and time.monotonic() < deadline, self.process.communicate()[1]
            time.sleep(0.005)
        return self.members()

    def signal(self, number):
        for member in self.members():
            try:
                os.kill(member, number)
            except ProcessLookupError:
                pass

    def end(self):
        self.process.kill()
        self.signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def family(plugins):
    made = []

    def start(*arguments):
        environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
        made.append(Family(arguments, environment))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def config(engine, folder):
    write_tokens(folder / "tokens.bin")
    model, sizes = next(iter(TINY_MODELS.items()))
    return engine.write_config("waits.json", {
        "device": "cpu", "model": {"plugin": model, "seq_len": 32, **sizes}, "data": {"path": folder / "tokens.bin"},
        "train": {"steps": 100_000, "global_batch": 8}, "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}})


# The commands that start processes, and how many these are at least.
STARTS = {
    "train": (["train", "CONFIG", "--quiet", "--nproc", 2], 2),
    "verify": (["verify", "CONFIG", "--nproc", 2], 3),
    "compare": (["compare", "CONFIG", "--nproc", 2, "--steps", 1000, "--vary", "train.seed=3,4"], 3),
    "bench": (["bench", "communicator/gloo", "--nproc", 2, "--seconds", 60], 2),
    "plugins check": (["plugins", "check", "communicator/gloo"], 1),
}


@pytest.mark.parametrize("command", [name if name in ("verify", "bench") else pytest.param(name, marks=pytest.mark.full) for name in STARTS])
def test_children_end_with_their_parent(strata, family, config, command):
    """Children that do nothing any more, as ones that compute without end, are gone soon after their parent got SIGTERM."""
    words, count = STARTS[command]
    one = family(strata, *[config if word == "CONFIG" else word for word in words])
    one.wait_for_members(count)
    one.signal(signal.SIGSTOP)
    one.process.terminate()
    one.process.wait(15)
    deadline = time.monotonic() + 3
    while one.members() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not one.members()


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_before_it_has_come(strata, family, config, rank):
    one = family(strata, "train", config, "--quiet", "--nproc", 2)
    stopped = sorted(one.wait_for_members(2))[rank]
    os.kill(stopped, signal.SIGSTOP)
    begin = time.monotonic()
    said = one.process.communicate(timeout=20)[1]
    assert time.monotonic() - begin < 15, said
    assert one.process.returncode == 3, said
    assert f"rank {rank} is stopped, not slow: its process {stopped} " in said, said
    assert not one.members()
