"""Two hosts and the wire between them: whatever happens, the run goes on to the same losses, or every rank ends in time and names the cause."""
import json
import os
import signal
import time

import pytest

pytest.register_assert_rewrite("hosts")
from hosts import ADDRESSES, PORT, SIXTH, STEPS, Hosts, missing, server  # noqa: E402

LIMIT = 6                       # communicator.timeout_s of the config
ENDS = LIMIT + 15               # the side that is cut off ends by then, too
STAGES = ["parallel.pipeline=2", "partitioner=zero3", "scheduler=1f1b", "train.accumulation=2"]
full = pytest.mark.full

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there are hosts")
names = iter(range(1000))


@pytest.fixture
def hosts(strata, plugins, tmp_path):
    made = Hosts(strata, plugins, tmp_path, f"s{os.getpid() % 100000}x{next(names)}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def losses(strata, plugins, tmp_path_factory):
    """The losses of the same run on one host: a function of its ranks and settings."""
    known = {}

    def of(hosts, ranks, settings=()):
        key = (ranks, *settings)
        if key not in known:
            file = tmp_path_factory.mktemp("one_host") / "summary.json"
            from commands import call
            from engine import set_arguments
            call([strata, "train", hosts.config, "--quiet", "--nproc", ranks, "--oversubscribe", "--summary", file, *set_arguments(settings)],
                 env=hosts.environment)
            known[key] = json.loads(file.read_text())["losses"]
        return known[key]

    return of


# --- the run goes on -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [
    pytest.param({}, id="nothing happens", marks=full),
    pytest.param({"delay": 0.01}, id="10 ms", marks=full),
    pytest.param({"loss": 0.01}, id="1 % lost", marks=full),
    pytest.param({"bits_a_second": 10_000_000}, id="10 Mbit", marks=full),
    pytest.param({"delay": 0.01, "loss": 0.01, "bits_a_second": 10_000_000}, id="10 ms, 1 % lost, 10 Mbit", marks=full),
    pytest.param({"swapped": 0.1, "twice": 0.1}, id="reordered and doubled", marks=full),
    pytest.param({"damage": 0.005}, id="0.5 % damaged", marks=full)])
def test_trains_over_a_bad_wire(hosts, losses, faults):
    for name, value in faults.items():
        setattr(hosts.wire, name, value)
    hosts.start([*STAGES, "communicator.timeout_s=30"], a_host=2)
    hosts.expect_losses(losses(hosts, 4, STAGES), 90)
    assert not {"loss", "swapped", "damage"} & set(faults) or hosts.wire.spoiled > 0, "the wire spoiled nothing"


def test_trains_while_packets_are_lost_doubled_and_damaged(hosts, losses):
    hosts.wire.loss = hosts.wire.damage = hosts.wire.twice = hosts.wire.swapped = 0.01
    hosts.start(["communicator.timeout_s=30"])
    hosts.expect_losses(losses(hosts, 2), 60)
    assert hosts.wire.spoiled > 0, f"nothing of {hosts.wire.packets} packets was spoiled"


@full
@pytest.mark.parametrize("seconds, timeout", [(5, 20), (24, 120)])
def test_a_link_that_comes_back_in_time(hosts, losses, seconds, timeout):
    hosts.start([*STAGES, f"communicator.timeout_s={timeout}"], a_host=2)
    hosts.wait_for_step(2)
    hosts.wire.cut = True
    time.sleep(seconds)
    hosts.wire.cut = False
    hosts.expect_losses(losses(hosts, 4, STAGES), 4 * seconds + 60)


@full
def test_trains_over_the_sixth_version(hosts, losses):
    hosts.start(address=SIXTH[0])
    hosts.expect_losses(losses(hosts, 2), 60)


@full
def test_trains_without_the_number_of_ranks_a_host(hosts, losses):
    hosts.start(more=lambda rank: {"LOCAL_WORLD_SIZE": ""})
    hosts.expect_losses(losses(hosts, 2), 60)


@full
def test_a_rank_that_is_late(hosts, losses):
    hosts.start(only=[0])
    time.sleep(LIMIT / 2)
    hosts.start(only=[1])
    hosts.expect_losses(losses(hosts, 2), 60)


@full
def test_a_host_that_is_frozen_for_less_than_the_limit(hosts, losses):
    hosts.start(["communicator.timeout_s=20"])
    hosts.wait_for_step(2)
    hosts.freeze(0)
    time.sleep(8)
    hosts.thaw(0)
    hosts.expect_losses(losses(hosts, 2), 60)


# --- every rank ends -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how, a_host", [
    pytest.param("cut", 1, id="the link is cut"),
    pytest.param("cut", 2, id="the link is cut, 4 ranks", marks=full),
    pytest.param("loss", 2, id="all packets are lost, 4 ranks", marks=full)])
def test_ends_on_both_sides_when(hosts, how, a_host):
    hosts.start(STAGES if a_host == 2 else (), a_host=a_host, steps=100_000)
    hosts.wait_for_step(2)
    setattr(hosts.wire, how, True)
    hosts.expect_end(ENDS, "no longer responds", "did not respond for")


@full
@pytest.mark.parametrize("number", [0, 1])
def test_ends_when_the_other_host_is_frozen(hosts, number):
    """Its ranks say so when it goes on."""
    hosts.start(STAGES, a_host=2, steps=100_000)
    hosts.wait_for_step(2)
    hosts.freeze(number)
    others = [rank for rank in hosts.ranks if rank.number // 2 != number]
    hosts.expect_end(ENDS, "no longer responds", "did not respond for", ranks=others, reads=number == 1)
    hosts.thaw(number)
    hosts.finish(ENDS)


@full
@pytest.mark.parametrize("rank", [0, 3])
def test_ends_when_a_rank_is_killed(hosts, rank):
    hosts.start(STAGES, a_host=2, steps=100_000)
    hosts.wait_for_step(2)
    os.kill(hosts.ranks[rank].inner(), signal.SIGKILL)
    hosts.expect_end(10, "died: its process", "no longer responds", "did not respond for", "was lost", "closed by peer", ranks=[one for one in hosts.ranks if one.number != rank])


@full
def test_ends_when_a_rank_is_stopped(hosts):
    hosts.start(STAGES, a_host=2, steps=100_000)
    hosts.wait_for_step(2)
    os.kill(hosts.ranks[3].inner(), signal.SIGSTOP)
    hosts.expect_end(ENDS, "is stopped, not slow", ranks=hosts.ranks[:3])


@full
def test_a_request_to_one_rank_stops_all(hosts):
    hosts.start(STAGES, a_host=2, steps=100_000)
    hosts.wait_for_step(2)
    os.kill(hosts.ranks[3].inner(), signal.SIGTERM)
    hosts.finish(20)
    assert {rank.process.returncode for rank in hosts.ranks} <= {143, -15}, hosts.said()


@pytest.mark.parametrize("answer, word", [
    pytest.param(None, "another program accepts connections", id="says nothing"),
    pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "'HTTP/1.1 400 Bad Request'", id="serves the web")])
def test_ends_when_the_program_at_the_port(hosts, answer, word):
    child = hosts.run_in(0, lambda: server(ADDRESSES[0], PORT, answer))
    try:
        time.sleep(0.5)
        hosts.start()
        hosts.expect_end(ENDS, word, "Address already in use", reads=False)
        assert word in hosts.ranks[1].output, hosts.said()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@full
@pytest.mark.parametrize("address, words", [
    ("10.77.0.9", ("no route from here to host",)),
    ("no-such-host.invalid", ("cannot be resolved",)),
    ("127.0.0.1", ("is a loopback address",))])
def test_ends_with_a_wrong_address(hosts, address, words):
    hosts.start(address=address)
    hosts.finish(ENDS, reads=False)
    for rank in hosts.ranks:
        assert rank.process.returncode in (2, 3) and any(word in rank.output for word in words), hosts.said()


def test_one_rank_twice_is_named(hosts):
    """At once: nobody waits for the rank that is missing."""
    hosts.start(["communicator.timeout_s=60"], a_host=2, only=[0, 1, 1])
    hosts.finish(15, reads=False)
    assert any("two processes are rank 1 of one run: process " in rank.output for rank in hosts.ranks), hosts.said()
    assert all(rank.process.returncode == 3 for rank in hosts.ranks), hosts.said()


@full
def test_rank_0_twice_is_named(hosts):
    hosts.start(["communicator.timeout_s=20"], only=[0, 0])
    time.sleep(3)
    hosts.start(["communicator.timeout_s=20"], only=[1])
    first = [rank for rank in hosts.ranks if "Address already in use" in rank.output]
    assert len(first) == 1 and first[0].process.wait(10) == 3, hosts.said()
    hosts.finish(60, [rank for rank in hosts.ranks if rank is not first[0]])
    assert all(rank.process.returncode == 0 for rank in hosts.ranks if rank is not first[0]), hosts.said()


@full
def test_two_jobs_at_once_are_told_apart(hosts):
    """Chance decides which ranks come first. Every rank ends in time and names the cause, or one job trains. A rank 0 that starts after the other
    job has ended serves those of its ranks that are left."""
    for _ in range(2):
        hosts.start(STAGES, a_host=2)
    hosts.finish(30)
    for rank in hosts.ranks:
        words = ("Address already in use", "two processes are rank", "failed with its own error", "no longer responds", "has left the run",
                 "no connection to the run's store", "did not arrive within")
        assert rank.process.returncode == 0 or any(word in rank.output for word in words), hosts.said()


@full
def test_a_second_job_leaves_the_first_alone(hosts, losses):
    hosts.start(STAGES, a_host=2)
    hosts.wait_for_step(2)
    first = list(hosts.ranks)
    hosts.start(STAGES, a_host=2)
    second = hosts.ranks[4:]
    hosts.finish(15, second, reads=False)
    for rank in second:
        assert rank.process.returncode == 3 and ("Address already in use" in rank.output or "two processes are rank" in rank.output), hosts.said()
    hosts.ranks = first
    hosts.expect_losses(losses(hosts, 4, STAGES), 60)


@full
def test_jobs_with_names_of_their_own_are_told_apart(hosts):
    hosts.start(only=[0])
    hosts.start(only=[1], more=lambda rank: {"TORCHELASTIC_RUN_ID": "another"})
    hosts.expect_end(ENDS, "serves another run", "did not arrive", reads=False)


@full
def test_another_number_of_ranks_is_named(hosts):
    hosts.start(["communicator.timeout_s=20"], only=[0], more=lambda rank: {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2})
    hosts.start(["communicator.timeout_s=20"], only=[1])
    seconds = hosts.finish(40, reads=False)
    assert seconds[0] < seconds[1] + 5, f"{seconds}\n{hosts.said()}"
    assert "WORLD_SIZE = 4" in hosts.ranks[1].output and "WORLD_SIZE = 2" in hosts.ranks[1].output, hosts.said()


@full
def test_a_rank_that_never_comes_is_named(hosts):
    hosts.start([*STAGES, "communicator.timeout_s=13"], a_host=2, only=[0, 1, 2])
    hosts.expect_end(13 + 15, "rank 3 of 4 did not arrive within 13 s (communicator.timeout_s)", reads=False)
    told = [rank.number for rank in hosts.ranks if "rank 3 of 4 did not arrive within 10 s; waiting until communicator.timeout_s, 13 s" in rank.output]
    assert told == [0], hosts.said()


@full
@pytest.mark.parametrize("setting", ["train.seed=4", "learning_rate.base=0.1", f"train.steps={STEPS + 1}", "partitioner=zero2"])
def test_a_key_that_differs_is_named(hosts, setting):
    hosts.start(only=[0])
    hosts.start([setting], only=[1])
    hosts.expect_end(ENDS, setting.split("=")[0], reads=False)
    sentences = {line for rank in hosts.ranks for line in rank.output.splitlines() if "differ between ranks" in line}
    assert len(sentences) == 1, f"all ranks say it in the same words\n{hosts.said()}"
