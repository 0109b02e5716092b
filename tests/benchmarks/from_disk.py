#!/usr/bin/env python3
"""Trains a model whose state is many times the memory that it gets: parameters, gradients and optimizer state lie on a disk (offload/nvme).

Reports the largest memory of tensors on the device (the ledger's, which `strata plan` predicts), the process's resident memory in the
steps, step times, and bytes read and written in a step. With --limit the process runs in a control group of so much memory, which
needs root; the kernel ends it where it takes more. The tokens are this repository's sources, a byte a token.

  python3 tests/benchmarks/from_disk.py --build build/release --disk FOLDER --preset pythia-410m --steps 200 --device-budget 768MB
  python3 tests/benchmarks/from_disk.py --build build/release --disk FOLDER --preset pythia-1.4b --steps 20 --limit 6GiB
"""
import argparse, json, os, pathlib, re, statistics, sys, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["core", "sdk", "plugins", "examples", "tests", "cmake", "README.md"]
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text):
    found = re.fullmatch(r"([0-9.]+)(\w*)", text)
    if not found or found[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text} is no size such as 768MB or 6GiB")
    return int(float(found[1]) * UNITS[found[2]])


class ControlGroup:
    """A limit of memory for this process and what it starts, by control groups of version 2 or 1."""

    def __init__(self, bytes_):
        root = pathlib.Path("/sys/fs/cgroup")
        second = (root / "cgroup.controllers").exists()
        line = r"^0::(.*)$" if second else r"^\d+:memory:(.*)$"
        root = root if second else root / "memory"
        try:
            self.own = root / re.search(line, pathlib.Path("/proc/self/cgroup").read_text(), re.MULTILINE)[1].lstrip("/")
            self.group = root / f"strata-bench-{os.getpid()}"
            self.group.mkdir()
            (self.group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(bytes_))
            (self.group / "cgroup.procs").write_text(str(os.getpid()))
        except (OSError, TypeError) as error:
            sys.exit(f"from_disk.py: --limit needs a control group that this user may make: {error}")

    def leave(self):
        (self.own / "cgroup.procs").write_text(str(os.getpid()))
        self.group.rmdir()


def train(arguments, folder):
    strata, tokens = arguments.build / "bin/strata", folder / "tokens.bin"
    plugins = {"STRATA_PLUGIN_PATH": str(arguments.build / "lib/strata/plugins")}
    call([strata, "data", "pack", *(REPOSITORY / text for text in TEXTS), "-o", tokens], **plugins)
    settings = [f"data.path={tokens}", f"model.preset={arguments.preset}", f"model.seq_len={arguments.seq_len}", "train.global_batch=1", "train.micro_batch=1",
                f"train.steps={arguments.steps}", f"learning_rate.base={arguments.rate}", "learning_rate.plugin=constant", "learning_rate.warmup=0",
                "partitioner.plugin=zero3", f"precision.plugin={arguments.precision}", "activations.checkpoint=all",
                *(f"offload.{what}={{plugin: nvme, path: \"{arguments.disk}\"}}" for what in ("parameters", "optimizer")), *arguments.set]
    words = [word for setting in settings for word in ("--set", setting)]
    plan = json.loads(call([strata, "plan", REPOSITORY / "configs/quickstart.yaml", *words, "--format", "json"], **plugins))["ranks"][0]
    print(f"planned: {plan['total'] / 1e6:.0f} MB on the device", file=sys.stderr)
    group = ControlGroup(arguments.limit) if arguments.limit else None
    try:
        call([strata, "train", REPOSITORY / "configs/quickstart.yaml", *words, "--quiet", "--summary", folder / "summary.json", "--metrics",
              folder / "metrics.jsonl"], OMP_NUM_THREADS=str(arguments.threads), **plugins)
    finally:
        if group:
            group.leave()
    steps = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    return plan, [step for step in steps if "loss" in step and "rss" in step], json.loads((folder / "summary.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--disk", type=pathlib.Path, required=True, help="a folder on the disk that holds the state")
    parser.add_argument("--preset", default="pythia-410m")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=size, help="of the process's memory, such as 6GiB")
    parser.add_argument("--device-budget", type=size, help="what tensors on the device may take, such as 768MB; more is an error")
    parser.add_argument("--set", action="append", default=[], help="a setting; may be repeated")
    arguments = parser.parse_args()
    arguments.build, arguments.disk = arguments.build.resolve(), arguments.disk.resolve()
    with tempfile.TemporaryDirectory(prefix="strata-from-disk-") as folder:
        plan, steps, summary = train(arguments, pathlib.Path(folder))
    losses, resident = [step["loss"] for step in steps], [step["rss"][0] for step in steps[2:]]
    device = summary["memory"][0]["total_peak_bytes"][0]
    moved = {what: (steps[-1]["offload"][0][what] - steps[1]["offload"][0][what]) / (len(steps) - 2) for what in ("read", "written")}
    fifth = max(1, len(losses) // 5)
    rows = [["device, counted tensors", f"{device / 1e6:.0f} MB"], ["device, planned with temporaries", f"{plan['total'] / 1e6:.0f} MB"],
            ["resident from step 3 on, least .. most", f"{min(resident) / 2**20:.0f} .. {max(resident) / 2**20:.0f} MiB ({max(resident) / min(resident) - 1:.2%})"],
            ["loss, mean of the first and of the last fifth", f"{statistics.mean(losses[:fifth]):.3f}, {statistics.mean(losses[-fifth:]):.3f}"],
            ["median step", f"{summary['median_step_s']:.2f} s"], ["read and written in a step", f"{moved['read'] / 1e9:.2f} and {moved['written'] / 1e9:.2f} GB"]]
    print(markdown([f"{arguments.preset}, {len(steps)} steps", ""], rows))
    wrong = []
    if arguments.device_budget and plan["total"] > arguments.device_budget:
        wrong.append(f"the device's peak is above {arguments.device_budget / 1e6:.0f} MB")
    if max(resident) > 1.01 * min(resident):
        wrong.append("resident memory is not flat to 1 %")
    if statistics.mean(losses[-fifth:]) >= statistics.mean(losses[:fifth]):
        wrong.append("the loss does not fall")
    if wrong:
        sys.exit("from_disk.py: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
