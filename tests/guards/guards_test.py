"""What a plugin breaks at run time is noticed by the engine: each defect of planted/ ends the run, or is said, in one sentence that names
the plugin, what it did, the rule and the remedy. The same plugins without a defect train."""
import json
import re
import time

import pytest
from commands import told
from engine import TINY_MODELS, Engine, set_arguments

ZERO = "partitioner/faulty"


class Guarded:
    def __init__(self, engine, tokens):
        model, sizes = next(iter(TINY_MODELS.items()))
        self.engine = engine
        self.config = engine.write_config("guards.json", {
            "device": "cpu", "model": {"plugin": model, "seq_len": 16, **sizes}, "data": {"path": tokens}, "train": {"steps": 4, "micro_batch": 1},
            "learning_rate": {"base": 1e-3}, "partitioner": {"plugin": "faulty"}, "communicator": {"timeout_s": 30}})

    def strata(self, command, *settings, ranks=2, words=()):
        return self.engine.run(command, self.config, *(["--nproc", ranks] if ranks > 1 else []), *words, *set_arguments(settings), timeout=100)

    def train(self, defect, *settings, ranks=2):
        return self.strata("train", f"partitioner.defect={defect}", *settings, ranks=ranks, words=["--quiet"])


@pytest.fixture(scope="module")
def guarded(strata, plugins, build, folder, tokens):
    return Guarded(Engine(strata, [plugins, build / "guards_defects"], folder), tokens)


def check_said(done, status, *texts):
    missing = [text for text in texts if text not in done.stderr]
    assert done.returncode == status and not missing, f"does not say {missing} with status {status}: {told(done)}"


def test_without_a_defect(guarded):
    check_said(guarded.train("none"), 0)


def test_orders_differ_between_processes(guarded):
    pipeline = ("parallel.pipeline=3", "scheduler.plugin=moody", "train.accumulation=3", "partitioner.plugin=ddp")
    done = guarded.strata("train", *pipeline, ranks=3, words=["--quiet"])
    check_said(done, 3, "the orders of scheduler/moody differ between ranks: rank 0 has stage 0: F0.0 F0.1 F0.2 B0.0 B0.1 B0.2, rank 1 has stage 0: "
               "F0.0 F0.1 F0.2 B0.2 B0.1 B0.0", "pure functions, the same in every process")


COUNTED = "norms and files need each element once: owned() covers every element"
REFUSED = {"counts_half": COUNTED, "negative": "owned() gives elements [-1, ", "overlaps": "slices of one rank have no element in common",
           "counts_outside": "it counts a part of it", "writes_values": "after publish() a rank has other values of ",
           "writes_replica": "ranks that own the same elements of "}


@pytest.mark.parametrize("defect", REFUSED)
def test_refused_at_the_start(guarded, defect):
    check_said(guarded.train(defect), 70, ZERO, REFUSED[defect])


@pytest.mark.parametrize("defect", ["negative", "overlaps", "counts_outside"])
def test_refused_by_plan(guarded, defect):
    check_said(guarded.strata("plan", f"partitioner.defect={defect}"), 70, ZERO, REFUSED[defect])


def test_plan_says_what_meta_tensors_lack(guarded):
    check_said(guarded.strata("plan", "partitioner.defect=reads_values"), 70, f"plugin {ZERO}: gather", "which have shapes and no values", "item()")


def test_rounding_mode(guarded):
    check_said(guarded.train("rounds_up"), 70, f"plugin {ZERO}: finish_gradient", "changed this thread's rounding mode", "fesetround")


def test_shutdown_that_sleeps(guarded):
    begin = time.monotonic()
    check_said(guarded.train("sleeps"), 70, f"plugin {ZERO}: shutdown() does not return: for 5 s the process neither computed nor")
    assert time.monotonic() - begin < 60


@pytest.mark.full
def test_shutdown_that_computes_is_named(guarded):
    done = guarded.train("spins", ranks=1)
    check_said(done, 70, f"plugin {ZERO}: shutdown() has not returned for 5 s", f"plugin {ZERO}: shutdown() does not return: for 60 s")


def test_shutdown_that_writes_is_waited_for(guarded, tmp_path):
    check_said(guarded.train("writes_disk", f"partitioner.path={tmp_path}/written", ranks=1), 0, "shutdown() has not returned for 5 s")
    assert (tmp_path / "written").stat().st_size == 4096


ENDS = {"exits": (70, "exit()"), "exits_at_once": (70, "_exit()"), "aborts": (134, "Aborted"), "faults": (139, "Segmentation fault")}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("defect", ENDS)
def test_plugin_that_ends_the_process(guarded, defect, ranks):
    status, how = ENDS[defect]
    if ranks == 1 and status > 128:
        status = 128 - status  # as Python says it of its own child
    check_said(guarded.train(defect, ranks=ranks), status, f"plugin {ZERO}: ended the program with {how}, in finish_gradient", "must throw an error instead")


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("communicator", ["gloo", "shm"])
def test_ranks_that_call_differently(guarded, communicator, ranks):
    done = guarded.train("calls_other", f"communicator.plugin={communicator}", ranks=ranks)
    check_said(done, 3, f"plugin {ZERO}: finish_gradient", "all members of a group must make the same calls")
    assert re.search(r"rank [01] calls all_reduce #\d+ of 4 bytes \(sum\) on group \S+ where rank \d calls all_reduce #\d+ of 4000 bytes", done.stderr), told(done)


@pytest.mark.parametrize("communicator", ["gloo", "shm"])
def test_a_message_of_another_size(guarded, communicator):
    done = guarded.train("sends_other", f"communicator.plugin={communicator}", "partitioner.of_first=1000", "partitioner.of_last=1")
    check_said(done, 3, f"plugin {ZERO}: finish_gradient", "where rank 1 calls receive #1 of 4 bytes", "rank 0 calls send #1 of 4000 bytes")


def compare(guarded, *settings, steps=20):
    words = ["--quiet", "--rounds", 1, "--steps", steps, "--format", "json", "--vary", "partitioner.plugin=zero2,faulty"]
    return guarded.strata("compare", *settings, words=words)


def variants(done):
    assert done.returncode == 0, told(done)
    return json.loads(done.stdout)["variants"]


def test_compare_of_equal_things(guarded):
    right = variants(compare(guarded))[1]
    assert not right["breaks_promise"] and right["promise"] == "partitioner/faulty declares reassociation, partitioner/zero2 declares reassociation", right
    assert "RSS grows a step" not in right["quantities"], right["quantities"]


def test_compare_names_a_broken_promise(guarded):
    wrong = variants(compare(guarded, "partitioner.faulty.defect=scales", steps=4))[1]
    assert wrong["breaks_promise"], wrong


def test_compare_names_growing_memory(guarded):
    right, wrong = variants(compare(guarded, "partitioner.faulty.defect=leaks", steps=100))
    assert right["quantities"]["RSS grows a step"] == 0 and 0.5 * 2**20 < wrong["quantities"]["RSS grows a step"] < 2 * 2**20, (right, wrong)


@pytest.mark.parametrize("defect", ["exits", "exits_at_once", "aborts"])
def test_compare_names_who_ended_the_process(guarded, defect):
    check_said(compare(guarded, f"partitioner.faulty.defect={defect}", steps=4), 3, "partitioner.plugin=faulty ended", ZERO, ENDS[defect][1])
