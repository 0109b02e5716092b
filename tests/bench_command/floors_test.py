"""A floor of `strata bench` is what nothing can beat: out of cache, no plugin here takes less than 0.97 of its own.

The lower quartiles of both are compared: the least of all is a lucky moment where a machine does other work. A row that seems to beat its
floor is measured again, up to eleven times, and all rounds count: a floor may have been unlucky in all of eight, but one that is wrong stays
beaten. By default the two plugins that come nearest to theirs, adamw and the processor's operators, with one thread; with --full every
plugin that can be used here, the three kinds that use threads with two as well.
"""
import json

import pytest
from commands import run, told
from place import usable_plugins

LEAST_RATIO = 0.97
TRIES = 12
NEAREST = ("device/cpu", "optimizer/adamw")
ROUNDS = 8
SIZES = ["hidden_size=128", "layers=6", "heads=4", "intermediate_size=512", "vocabulary=50304"]  # of pythia-14m
SETTINGS = {f"model/{family}": SIZES for family in ("gpt_neox", "gpt2", "llama")}


def bytes_out_of_cache():
    """More than the largest cache of the first core, and little enough for nine streams of it."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="utf-8") as file:
            kibibytes = int(file.read().strip().rstrip("K"))
    except (OSError, ValueError):
        kibibytes = 0
    return min(max(64 << 20, 2 * kibibytes << 10), 256 << 20)


def bench(engine, plugin, size, threads):
    """Rows by case; none where the plugin cannot be used here."""
    command = [engine.strata, "bench", plugin, "--rounds", str(ROUNDS), "--seconds", "1e-3", "--threads", str(threads), "--format", "json"]
    command += ["--size", str(size)] if size else []
    for setting in SETTINGS.get(plugin, []):
        command += ["--set", setting]
    done = run(command, env={**engine.environment, "OMP_NUM_THREADS": str(threads)}, timeout=600)
    if done.returncode == 3 and "cannot be measured here" in done.stderr:
        return {}
    assert done.returncode == 0, told(done)
    return {f"{row['case']}, {row['size']}": row for row in json.loads(done.stdout)["rows"]}


def times(engine, plugin, size, threads):
    """By case: the times of all rounds, the floor's, and its name. Stops when no floor is beaten."""
    found = {}
    for _ in range(TRIES):
        for case, row in bench(engine, plugin, size, threads).items():
            values, floor, _ = found.setdefault(case, ([], [], row["floor"]))
            values += row["values"]
            floor += row["floor_values"]
        if all(ratio(values, floor) >= LEAST_RATIO for values, floor, _ in found.values()):
            break
    return found


def ratio(values, floor):
    """Of the lower quartiles."""
    return sorted(values)[len(values) // 4] / sorted(floor)[len(floor) // 4]


def pytest_generate_tests(metafunc):
    cases = []
    for plugin in usable_plugins():
        for threads in (1, 2) if plugin.split("/")[0] in ("device", "offload", "optimizer") else (1,):
            cases.append(pytest.param(plugin, threads, marks=[] if plugin in NEAREST and threads == 1 else pytest.mark.full))
    metafunc.parametrize("plugin, threads", cases)


def test_no_floor_is_beaten(engine, plugin, threads):
    size = {"precision": 1024, "scheduler": None, "model": None, "data": None}.get(plugin.split("/")[0], bytes_out_of_cache())
    found = times(engine, plugin, size, threads)
    for case, (values, floor, name) in found.items():
        print(f"{case}: {ratio(values, floor):.2f} of {name}")
    beaten = [case for case, (values, floor, _) in found.items() if ratio(values, floor) < LEAST_RATIO]
    assert not beaten
