#!/usr/bin/env python3
"""A floor of `strata bench` is what nothing can beat: out of cache, no plugin here takes less than 0.97 of its own.

floors.py --strata PROGRAM [--full] [--size BYTES]

The lower quartiles of both are compared: the least of all is a lucky moment where a machine does other work. A row that seems to beat its
floor is measured again, up to five times, and all rounds count: a floor may have been unlucky in all of eight, but one that is wrong stays
beaten. By default the two plugins
that come nearest to theirs, adamw and the processor's operators, with one thread and with two; with --full every plugin that can be used
here.
"""
import argparse
import json
import os
import subprocess
import sys

LEAST_RATIO = 0.97
TRIES = 6
NEAREST = ("device/cpu", "optimizer/adamw")
ROUNDS = 8
SETTINGS = {"model/gpt_neox": ["preset=pythia-14m"]}


def bytes_out_of_cache():
    """More than the largest cache of the first core, and little enough for nine streams of it."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="utf-8") as file:
            kibibytes = int(file.read().strip().rstrip("K"))
    except (OSError, ValueError):
        kibibytes = 0
    return min(max(64 << 20, 2 * kibibytes << 10), 256 << 20)


def bench(strata, plugin, size, threads):
    """Rows by case; none where the plugin cannot be used here."""
    command = [strata, "bench", plugin, "--rounds", str(ROUNDS), "--seconds", "1e-3", "--threads", str(threads), "--format", "json"]
    command += ["--size", str(size)] if size else []
    for setting in SETTINGS.get(plugin, []):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)), timeout=600)
    if done.returncode == 3 and "cannot be measured here" in done.stderr:
        return {}
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr}")
    return {f"{row['case']}, {row['size']}": row for row in json.loads(done.stdout)["rows"]}


def times(strata, plugin, size, threads):
    """By case: the times of all rounds, the floor's, and its name. Stops when no floor is beaten."""
    found = {}
    for _ in range(TRIES):
        for case, row in bench(strata, plugin, size, threads).items():
            values, floor, _ = found.setdefault(case, ([], [], row["floor"]))
            values += row["values"]
            floor += row["floor_values"]
        if all(ratio(values, floor) >= LEAST_RATIO for values, floor, _ in found.values()):
            break
    return found


def ratio(values, floor):
    """Of the lower quartiles."""
    return sorted(values)[len(values) // 4] / sorted(floor)[len(floor) // 4]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    parser.add_argument("--full", action="store_true", help="every plugin")
    parser.add_argument("--size", type=int, default=bytes_out_of_cache(), help="bytes of a stream")
    arguments = parser.parse_args()
    listed = json.loads(subprocess.run([arguments.strata, "plugins", "list", "--format", "json"], capture_output=True, text=True, check=True).stdout)
    plugins = [entry["plugin"] for entry in listed if entry["plugin"] and not entry["problem"] and not entry["shadowed_by"]]
    failed = 0
    for plugin in (plugins if arguments.full else NEAREST):
        kind = plugin.split("/")[0]
        size = {"precision": 1024, "scheduler": None, "model": None, "data": None}.get(kind, arguments.size)
        for threads in (1, 2) if kind in ("device", "offload", "optimizer") else (1,):
            for case, (values, floor, name) in times(arguments.strata, plugin, size, threads).items():
                beaten = ratio(values, floor) < LEAST_RATIO
                failed += beaten
                print(f"{'FAILED' if beaten else 'passed'}: {plugin}, {threads} thread(s), {case}: {ratio(values, floor):.2f} of {name}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
