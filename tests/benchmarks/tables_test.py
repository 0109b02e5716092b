"""The output of the benchmarks: the processor's name, columns as they stand in the log, and no "95 %" over fewer than six rounds."""
import importlib.util
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "peers"))
from table import interval_name, processor  # noqa: E402

LOG = "\n".join(path.read_text(encoding="utf-8") for path in sorted((FOLDER / "log").glob("*.md")))


def module_of(path):
    specification = importlib.util.spec_from_file_location(path.parent.name + "_run", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


loop, peers = module_of(FOLDER / "run.py"), module_of(FOLDER / "peers" / "run.py")


def check_table(text, rounds):
    lines = text.splitlines()
    assert lines[0] == f"Processor: {processor()}."
    label = interval_name(rounds)
    assert (label == "95 %") == (rounds >= 6)
    assert ("95 %" in text) == (rounds >= 6) and ("least .. most" in text) == (rounds < 6), text
    header = next(line for line in lines if line.startswith("|")).replace(label, "95 %")
    assert header in [line.replace("spread", "95 %") for line in LOG.splitlines()], "no file of tests/benchmarks/log has such a table"


@pytest.fixture(params=[1, 2, 5, 6, 8])
def rounds(request):
    return request.param


@pytest.fixture
def ratios(rounds):
    return [1.0 + 0.1 * number for number in range(rounds)]


def test_table_of_the_loop(rounds, ratios):
    low, high = loop.interval(ratios)
    assert rounds >= 6 or (low, high) == (min(ratios), max(ratios))
    check_table(loop.show([{"model": "m", "batch": 4, "seq_len": 128, "threads": 1, "memory": "returned", "partitioner": "ddp", "ratio": 1.0,
                            "low": low, "high": high, "pairs": rounds, "engine_s": 0.1, "loop_s": 0.1, "loss_difference": 0.0}], "markdown"), rounds)


def test_table_of_peers(rounds, ratios):
    over = peers.ratio([[ratio, ratio + 0.01] for ratio in ratios])
    assert over[1] <= over[0] <= over[2]
    check_table(peers.show([{"model": "m", "variant": "strata ddp", "step_s": 0.1, "over_floor": over, "over_fastest_peer": over,
                             "interval": interval_name(rounds), "loss_difference": 0.0}], "markdown"), rounds)
