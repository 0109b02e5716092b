"""The bytes of ranks on a network, by its interfaces' counters, compared with the logical bytes of the run's summary.

Every rank runs in a network namespace of its own, its only way to the others a virtual Ethernet interface: a pair of them for two
ranks, a bridge between more. The communicator is gloo, over TCP. Bytes are those of a run of FIRST + MORE steps less those of one of
FIRST, so that start-up falls out. The counter is taken as it is: Ethernet, IP and TCP headers, acknowledgements and the
communicator's own messages are in it, and the logical bytes are within BOUND of it all the same. Skipped where namespaces may not be made.
"""
import json
import os
import subprocess
import time

import pytest
from engine import set_arguments

BOUND = 0.03
FIRST, MORE = 1, 4
INTERFACE = "link0"
# 17 MB of parameters: what the program says beside them in a step is a few hundred bytes. It divides by 2, 3 and 4 ranks.
MODEL = {"plugin": "gpt_neox", "hidden_size": 192, "layers": 8, "heads": 4, "intermediate_size": 768, "vocabulary": 2304, "seq_len": 16}
# Ranks, partitioner, settings under its name.
CASES = (
    (2, "ddp", ()), (2, "zero1", ()), (2, "zero2", ()), (2, "zero3", ()), (2, "zero3", ("max_reuse_distance=0",)), (2, "hybrid", ()),
    (3, "ddp", ()), (3, "zero2", ()), (3, "zero3", ()),
    (2, "ddp", ("sparse_gradients=true",)),
    (2, "zero3", ("weights_on_wire=int8", "gradients_on_wire=int4")),
    (4, "ddp", ()), (4, "hybrid", ()), (4, "hybrid", ("stage=1",)),
)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """Namespaces of `ranks` hosts that reach each other, until the end of the with statement."""

    def __init__(self, ranks):
        self.hosts = [f"strata{os.getpid()}-{rank}" for rank in range(ranks)]
        self.hub = f"strata{os.getpid()}-hub"
        self.made = []

    def __enter__(self):
        try:
            for name in self.hosts + [self.hub] * (len(self.hosts) > 2):
                ip("netns", "add", name)
                self.made.append(name)
            self.connect()
            for rank, host in enumerate(self.hosts):
                ip("-n", host, "address", "add", f"{self.address(rank)}/24", "dev", INTERFACE)
                ip("-n", host, "link", "set", INTERFACE, "up")
                ip("-n", host, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self):
        if len(self.hosts) == 2:
            ip("-n", self.hosts[0], "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", self.hosts[1])
            return
        ip("-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge0", "up")
        for rank, host in enumerate(self.hosts):
            ip("-n", host, "link", "add", INTERFACE, "type", "veth", "peer", "name", f"port{rank}", "netns", self.hub)
            ip("-n", self.hub, "link", "set", f"port{rank}", "master", "bridge0", "up")

    def __exit__(self, *_):
        for name in self.made:  # their interfaces go with them
            subprocess.run(["ip", "netns", "delete", name], check=False, timeout=30)

    @staticmethod
    def address(rank):
        return f"10.77.0.{rank + 1}"

    def sent(self, rank):
        """Bytes and packets that its interface sent since it is there."""
        counter = json.loads(ip("-n", self.hosts[rank], "-s", "-j", "link", "show", INTERFACE))[0]["stats64"]["tx"]
        return counter["bytes"], counter["packets"]


def environment_of(engine, network, rank):
    """What a launcher such as torchrun gives the only rank on a host."""
    size = str(len(network.hosts))
    return {**engine.environment, "RANK": str(rank), "WORLD_SIZE": size, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": network.address(0), "MASTER_PORT": "29400"}


def train(engine, network, config, settings):
    """By rank: logical bytes of the summary, bytes and packets of the interface."""
    summary = os.path.join(engine.work, "summary.json")
    before = [network.sent(rank) for rank in range(len(network.hosts))]
    ranks = []
    for rank, host in enumerate(network.hosts):
        words = ["ip", "netns", "exec", host, engine.strata, "train", config, "--quiet", *set_arguments(settings)]
        ranks.append(subprocess.Popen(words + (["--summary", summary] if rank == 0 else []), env=environment_of(engine, network, rank),
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    wait_for(ranks)
    with open(summary) as file:
        logical = [sent["total"] for sent in json.load(file)["sent"]]
    counted = []
    for rank, (bytes_before, packets_before) in enumerate(before):
        bytes_after, packets_after = network.sent(rank)
        counted.append((bytes_after - bytes_before, packets_after - packets_before))
    return list(zip(logical, counted, strict=True))


def wait_for(ranks, seconds=180):
    deadline = time.monotonic() + seconds
    try:
        outputs = [rank.communicate(timeout=max(1, deadline - time.monotonic()))[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, (rank, output) in enumerate(zip(ranks, outputs)):
        if rank.returncode != 0:
            raise AssertionError(f"rank {number} of {' '.join(rank.args)}: exit status {rank.returncode}: {output}")


@pytest.fixture(scope="module")
def config(engine, tokens):
    return engine.write_config("network.json", {
        "device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": FIRST, "micro_batch": 1},
        "learning_rate": {"base": 1e-3}, "communicator": {"plugin": "gloo", "timeout_s": 60}})


@pytest.fixture(scope="module")
def network(request):
    network = Network(request.param)
    try:
        network.__enter__()
    except FileNotFoundError:
        pytest.skip("there is no ip command; Debian's package iproute2 has it")
    except RuntimeError as error:
        pytest.skip(f"this needs network namespaces, and to make them the rights of root: {error}")
    yield network
    network.__exit__()


@pytest.mark.parametrize("network, partitioner, options", CASES, indirect=["network"],
                         ids=[f"{ranks} ranks, {' '.join([name, *options])}" for ranks, name, options in CASES])
def test_counters_are_the_logical_bytes(engine, network, config, partitioner, options):
    settings = [f"partitioner.plugin={partitioner}", *(f"partitioner.{partitioner}.{option}" for option in options)]
    less, more = (train(engine, network, config, settings + [f"train.steps={steps}"]) for steps in (FIRST, FIRST + MORE))
    for (logical_less, less_counted), (logical_more, more_counted) in zip(less, more):
        logical = (logical_more - logical_less) / MORE
        counted, packets = ((now - then) / MORE for now, then in zip(more_counted, less_counted))
        print(f"{counted / 1e6:.3f} MB in {packets:.0f} packets for {logical / 1e6:.3f} ({100 * (counted / logical - 1):+.2f} %)")
        assert logical > 4e6 and abs(counted - logical) <= BOUND * logical
