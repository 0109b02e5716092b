#!/usr/bin/env python3
"""offload/nvme compared with fio (io_uring, O_DIRECT, blocks of 1 MiB, each of the depths 8 to 128) and DeepNVMe, DeepSpeed's asynchronous
I/O, on the same folder: one after the other in every round. A peer's figure is that of its best setting. Goal: Strata reads and writes at
least as fast as the faster of both.

  python3 tests/benchmarks/peers/disk.py --python FOLDER/bin/python3 --build build/release --disk FOLDER
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from command import call
from table import markdown

DEPTHS = (8, 16, 32, 64, 128)
WAYS = ("read", "write")
# Block size, queue depth, threads: DeepSpeed's defaults, and what its own sweep names as good.
DEEPNVME = ((1 << 20, 8, 1), (1 << 20, 32, 1), (1 << 20, 128, 1), (8 << 20, 32, 8))
DEEPNVME_PROGRAM = """
import json, os, sys, time, torch
from deepspeed.ops.op_builder import AsyncIOBuilder
path, size, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
rates = {}
for block, depth, threads in settings:
    handle = AsyncIOBuilder().load().aio_handle(block, depth, False, True, threads)
    data = handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=torch.uint8))
    data.fill_(1)
    for way in ("write", "read", "write", "read"):
        begin = time.monotonic()
        count = (handle.sync_pwrite if way == "write" else handle.sync_pread)(data, path)
        rates[f"{way} {block >> 20} MiB, depth {depth}, {threads} threads"] = size / (time.monotonic() - begin)
    handle.free_cpu_locked_tensor(data)
print(json.dumps(rates))
"""


def fio(path, size, way, depth):
    """Bytes a second; the file was written before."""
    words = ["fio", "--name=x", f"--filename={path}", f"--rw={way}", "--bs=1M", f"--size={size}", "--ioengine=io_uring", "--direct=1", f"--iodepth={depth}",
             "--overwrite=1", "--output-format=json"]
    return json.loads(call(words))["jobs"][0][way]["bw_bytes"]


def strata(arguments, size):
    plugins = {"STRATA_PLUGIN_PATH": str(arguments.build / "lib/strata/plugins")}
    out = call([arguments.build / "bin/strata", "bench", "offload/nvme", "--set", f"path={arguments.disk}", "--set", f"queue_depth={arguments.depth}", "--size",
                str(size), "--rounds", "8", "--format", "json"], **plugins)
    return {way: next(row["work"] / row["median"] for row in json.loads(out)["rows"] if row["case"] == way) for way in WAYS}


def best(rates, way):
    return max((rate, name) for name, rate in rates.items() if name.startswith(way))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, required=True, help="the interpreter of peers/setup.sh; needs libaio's headers")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--disk", type=pathlib.Path, required=True, help="a folder on the disk to measure")
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes that are read and written at once")
    parser.add_argument("--depth", type=int, default=32, help="queue_depth of offload/nvme")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    arguments.build, arguments.disk = arguments.build.resolve(), arguments.disk.resolve()
    rounds = []
    with tempfile.TemporaryDirectory(prefix="strata-disk-", dir=arguments.disk) as folder:
        fio(f"{folder}/fio", arguments.size, "write", 8)  # gives the file its blocks
        for number in range(arguments.rounds):
            rates = {f"{way} depth {depth}": fio(f"{folder}/fio", arguments.size, way, depth) for depth in DEPTHS for way in WAYS}
            own = strata(arguments, arguments.size)
            words = [arguments.python, "-c", DEEPNVME_PROGRAM, f"{folder}/deepnvme", str(arguments.size), json.dumps(DEEPNVME)]
            peer = json.loads(call(words).splitlines()[-1])
            rounds.append({"fio": rates, "DeepNVMe": peer, "strata": own})
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    rows, wrong = [], []
    for way in WAYS:
        peers = {}
        for peer in ("fio", "DeepNVMe"):
            medians = {name: statistics.median(one[peer][name] for one in rounds) for name in rounds[0][peer]}
            peers[peer] = best(medians, way)
        strata_rate = statistics.median(one["strata"][way] for one in rounds)
        for peer, (rate, name) in peers.items():
            ratios = sorted(one["strata"][way] / one[peer][name] for one in rounds)
            rows.append([way, f"{strata_rate / 1e9:.2f} GB/s", f"{peer}, {name.removeprefix(way).strip()}", f"{rate / 1e9:.2f} GB/s",
                         f"**{statistics.median(ratios):.3f}**", f"{ratios[0]:.3f} .. {ratios[-1]:.3f}"])
            if statistics.median(ratios) < 1.0:
                wrong.append(f"{way} is slower than {peer}'s")
    print(markdown(["", "offload/nvme", "peer, its best setting", "peer's rate", "ratio", f"least .. most of {arguments.rounds}"], rows))
    if wrong:
        sys.exit("disk.py: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
