#!/usr/bin/env python3
"""Strata on two ranks of this machine compared with DeepSpeed and FSDP2, step by step in turns; train.py is a peer's run, setup.sh
installs them.

Every rank has one thread and one sample a step. The floor is one process of plain torch with two threads and both samples. All train the
same GPT-NeoX from the same weights on the same tokens (this repository's sources, a byte a token) in fp32; losses must agree at every
step, or nothing is compared and the exit status is 1. Each of Strata's variants runs together with the floor and the faster peer: all
are started, and then one after the other makes a step while the others wait, so that a ratio is of steps made within seconds of each
other (turns.py). In a round every variant is started anew. Ratios are medians over the steps after the warm-up ones of all rounds, with
the interval in which 95 % of medians lie when the rounds, and the steps in them, are drawn again; of fewer than six rounds the least
and the most of the rounds' medians, and no such label. Three runs must fit into memory at once: for pythia-160m 24 GB were enough.

Which peer is faster is found the same way, by four steps. With --tune so are the peers' settings first: DeepSpeed's stage, bucket sizes
and overlap_comm, FSDP2's reshard_after_forward. With --memory no times are compared but each rank's net memory: its peak resident memory
in the steps, less that of a process that has loaded its libraries (Strata: less that of a run whose model has a few kilobytes), under
MALLOC_MMAP_THRESHOLD_=1048576; Strata's beside what `strata plan` says, all beside 16 bytes a parameter over the ranks. The peers then
run with the settings that the times are of (with --tune those found here), and with those that cut parameters too, as zero3 does.

  tests/benchmarks/peers/setup.sh FOLDER
  python3 tests/benchmarks/peers/run.py --python FOLDER/bin/python3 --build build/release --tune
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from turns import Failed, Run, in_turns

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from table import SMALLEST_ROUNDS, interval_name, markdown  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
TEXTS = ["core", "sdk", "plugins", "examples", "tests", "cmake", "README.md"]
PARTITIONERS = ["ddp", "zero1", "zero2", "zero3"]
RATE, SEQ_LEN, RANKS = 1e-3, 256, 2
TOLERANCE = 1e-4  # of losses: twenty steps of Adam amplify the order of sums
BUCKETS = [20_000_000, 500_000_000]  # elements; the second is DeepSpeed's default
CUT = [("deepspeed", ["--stage", 3, "--bucket", BUCKETS[0]]), ("fsdp2", ["--reshard"])]  # parameters too, as zero3 does
DEEPSPEED, FSDP2 = ["--stage", 1, "--bucket", BUCKETS[0]], []  # where they are not tuned: what was fastest when this was written
FLOOR = "floor: torch, one process"
SMALL_MODEL = ["hidden_size=8", "layers=1", "heads=1", "intermediate_size=8", "vocabulary=257"]


def fail(message):
    sys.exit(f"tests/benchmarks/peers/run.py: {message}")


class Bench:
    floor, tolerance = FLOOR, TOLERANCE
    turn = 1  # the steps that a variant makes in its turn; of more than one the first is not timed

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        self.tokens = folder / "tokens.bin"
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1",
                                THP_MEM_ALLOC_ENABLE="1",  # huge pages, which Strata asks for by itself; so the others have them too
                                STRATA_PLUGIN_PATH=str(arguments.build / "lib" / "strata" / "plugins"))

    def call(self, command, **environment):
        words = [str(word) for word in command]
        done = subprocess.run(words, env={**self.environment, **environment}, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            fail(f"exit status {done.returncode} of {' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def training(self, summary, ranks, settings):
        """The words of `strata train`."""
        given = [f"data.path={self.tokens}", f"model.seq_len={SEQ_LEN}", "learning_rate.plugin=constant", "learning_rate.warmup=0", *settings]
        return [self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", *(["--nproc", ranks] if ranks > 1 else []),
                "--summary", summary, *(word for setting in given for word in ("--set", setting))]

    def train(self, ranks, settings, *options, threads="1"):
        summary = self.folder / "summary.json"
        self.call([*self.training(summary, ranks, settings), *options], OMP_NUM_THREADS=threads)
        return json.loads(summary.read_text())

    def prepare(self):
        self.call([self.strata, "data", "pack", *[REPOSITORY / text for text in TEXTS], "-o", self.tokens])
        for model in self.arguments.models:  # a step at learning rate 0 leaves the initial values as they are
            self.train(1, [f"model.preset={model}", "learning_rate.base=0", "train.steps=1", "train.micro_batch=1", "partitioner.plugin=ddp",
                           *self.arguments.set], "--export", self.folder / model)

    def settings(self, model, given, micro_batch, steps=None):
        return [f"model.init={self.folder / model}", "model.preset=none", f"learning_rate.base={RATE}",
                f"train.steps={steps or self.arguments.steps}", f"train.micro_batch={micro_batch}", *given, *self.arguments.set]

    def peer_command(self, model, peer, options, steps):
        ranks = 1 if peer == "torch" else RANKS
        launch = [self.arguments.python] if ranks == 1 else [
            self.arguments.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks]
        return [*launch, REPOSITORY / "tests/benchmarks/peers/train.py", peer, "--weights", self.folder / model, "--tokens", self.tokens,
                "--seq-len", SEQ_LEN, "--micro-batch", RANKS // ranks, "--steps", steps, "--rate", RATE, *options]

    def run_peer(self, model, peer, *options):
        return peer_result(self.call(self.peer_command(model, peer, options, self.arguments.steps)))

    def of_peer(self, model, peer, *options):
        """A variant: called with steps and a folder for it, the function that starts it and one that reads what it did."""
        ranks = 1 if peer == "torch" else RANKS
        environment = dict(self.environment, OMP_NUM_THREADS=str(RANKS // ranks))
        return lambda steps, folder: (
            lambda: Run(self.peer_command(model, peer, options, steps), ranks, environment, folder, by_descriptor=False), peer_result)

    def of_strata(self, model, given, ranks):
        environment = dict(self.environment, OMP_NUM_THREADS=str(RANKS // ranks))
        return lambda steps, folder: (
            lambda: Run(self.training(folder / "summary.json", ranks, self.settings(model, given, RANKS // ranks, steps)), ranks,
                        environment, folder, by_descriptor=True),
            lambda printed: json.loads((folder / "summary.json").read_text()))

    def together(self, variants, steps):
        """Name -> result, of variants that made their steps in turns."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            made = [variant(steps, pathlib.Path(folder) / str(number)) for number, variant in enumerate(variants.values())]
            try:
                printed = in_turns([start for start, _ in made], steps, self.turn)
            except Failed as failed:
                fail(str(failed))
            return {name: read(text) for name, (_, read), text in zip(variants, made, printed)}

    def faster(self, one, other):
        """Of two named variants the one that makes its steps faster."""
        results = self.together(dict([one, other]), steps=5)
        first, second = (results[name]["step_seconds"][1:] for name in (one[0], other[0]))
        over = statistics.median(ratios_of(second, first))
        print(f"{other[0]} over {one[0]}: {over:.2f} times the time", file=sys.stderr)
        return one if over >= 1 else other

    def fastest(self, model, peer, candidates):
        """Its name and options."""
        named = [(name_of(peer, options), options) for options in candidates]
        best = named[0]
        for candidate in named[1:]:
            kept = self.faster(*((name, self.of_peer(model, peer, *options)) for name, options in (best, candidate)))[0]
            best = best if kept == best[0] else candidate
        return best

    def settings_of_peers(self, model):
        """(peer, name, options) of the two peers, tuned when that is asked for."""
        deepspeed, fsdp2 = [DEEPSPEED], [FSDP2]
        if self.arguments.tune:
            stages = [["--stage", stage, "--bucket", bucket] for stage in (1, 2, 3) for bucket in BUCKETS]
            chosen = self.fastest(model, "deepspeed", stages)[1]
            deepspeed, fsdp2 = [chosen, [*chosen, "--overlap"]], [[], ["--reshard"]]
        return [(peer, *self.fastest(model, peer, candidates)) for peer, candidates in (("deepspeed", deepspeed), ("fsdp2", fsdp2))]

    def peers(self, model):
        """The two peers, the faster one first. Name -> variant."""
        named = [(name, self.of_peer(model, peer, *options)) for peer, name, options in self.settings_of_peers(model)]
        first = self.faster(*named)
        return dict([first, *(one for one in named if one is not first)])

    def times(self, model):
        peers = self.peers(model)
        peer = next(iter(peers))
        floor = {FLOOR: self.of_peer(model, "torch")}
        groups = [{**floor, **peers}, {**floor, peer: peers[peer], "strata, one process": self.of_strata(model, ["partitioner.plugin=ddp"], 1)}]
        for partitioner in PARTITIONERS:
            groups.append({**floor, peer: peers[peer], f"strata {partitioner}": self.of_strata(model, [f"partitioner.plugin={partitioner}"], RANKS)})
        return self.timed(model, groups, peer)

    def timed(self, model, groups, peer):
        """A line of each variant of the groups. Each is in a group with the floor, with the peer `peer`, or in one with both."""
        measured = {name: {"seconds": [], "over_floor": [], "over_peer": [], "losses": []} for group in groups for name in group}
        for number in range(self.arguments.rounds):
            for group in groups:
                self.measure(model, group, peer, measured)
            print(f"{model}: round {number + 1} of {self.arguments.rounds}", file=sys.stderr)
        return [{"model": model, "variant": name, "step_s": statistics.median(one["seconds"]), "over_floor": ratio(one["over_floor"]),
                 "interval": interval_name(self.arguments.rounds), "over_fastest_peer": ratio(one["over_peer"]),
                 "loss_difference": max(one["losses"])} for name, one in measured.items()]

    def is_timed(self, step):
        return step >= self.arguments.warmup and (self.turn == 1 or step % self.turn > 0)

    def comparable_steps(self, name):
        """The first steps whose losses are to be the floor's; None: all."""

    def measure(self, model, group, peer, measured):
        """Adds what a group's steps in turns took to `measured`."""
        results = self.together(group, self.arguments.steps)
        seconds = {name: [taken for step, taken in enumerate(result["step_seconds"]) if self.is_timed(step)] for name, result in results.items()}
        if self.floor in group:
            self.losses_of_floor = results[self.floor]["losses"]
        for name, result in results.items():
            losses = list(zip(result["losses"], self.losses_of_floor, strict=True))[:self.comparable_steps(name)]
            for step, (one, other) in enumerate(losses):
                if not abs(one - other) <= self.tolerance * abs(other):
                    fail(f"{model}, {name}, step {step}: loss {one}, and {other} of the floor: they do not do the same work")
            measured[name]["seconds"] += seconds[name]
            if self.floor in group:
                measured[name]["over_floor"].append(ratios_of(seconds[name], seconds[self.floor]))
            if peer in group:
                measured[name]["over_peer"].append(ratios_of(seconds[peer], seconds[name]))
            measured[name]["losses"].append(max(abs(one - other) / other for one, other in losses))

    def memory(self, model):
        """Net peak bytes of the worst rank, beside what it has to hold."""
        peers = self.settings_of_peers(model)
        peers += [(peer, name_of(peer, options), options) for peer, options in CUT if (peer, name_of(peer, options), options) not in peers]
        self.environment["MALLOC_MMAP_THRESHOLD_"] = "1048576"
        empty = self.train(RANKS, ["model.preset=none", *(f"model.{size}" for size in SMALL_MODEL), f"learning_rate.base={RATE}",
                                   f"train.steps={self.arguments.steps}", "train.micro_batch=1", "partitioner.plugin=zero3", *self.arguments.set])
        empty_bytes = max(rank["peak_rss_mib"] for rank in empty["memory"]) * 2**20
        words = [word for setting in [*self.settings(model, ["partitioner.plugin=zero3"], 1), f"data.path={self.tokens}", f"model.seq_len={SEQ_LEN}"] for word in ("--set", setting)]
        plan = json.loads(self.call([self.strata, "plan", REPOSITORY / "configs/quickstart.yaml", *words, "--ranks", RANKS, "--format", "json"]))
        planned = max(rank["total"] + sum(rank["peak_bytes"].get("host", {}).values()) for rank in plan["ranks"])
        split = 16 * self.parameters(model) / RANKS
        lines = []
        variants = {"strata zero3": lambda: [rank["peak_rss_mib"] * 2**20 - empty_bytes
                                             for rank in self.train(RANKS, self.settings(model, ["partitioner.plugin=zero3"], 1))["memory"]]}
        for peer, name, options in peers:
            variants[name] = lambda peer=peer, options=options: self.run_peer(model, peer, *options)["net_bytes"]
        net = {name: [] for name in variants}
        for number in range(self.arguments.rounds):
            for name, run in variants.items():
                net[name].append(max(run()))
        del self.environment["MALLOC_MMAP_THRESHOLD_"]
        for name in variants:
            value = statistics.median(net[name])
            lines.append({"model": model, "variant": name, "net_mib": value / 2**20, "low_mib": min(net[name]) / 2**20, "high_mib": max(net[name]) / 2**20,
                          "over_plan": value / planned if name.startswith("strata") else None, "over_ideal_split": value / split})
        return lines

    def parameters(self, model):
        with open(self.folder / model / "model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        count = 0
        for name, tensor in header.items():
            if name != "__metadata__":
                elements = 1
                for extent in tensor["shape"]:
                    elements *= extent
                count += elements
        return count


def peer_result(printed):
    return json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith('{"losses"')))


def name_of(peer, options):
    """Such as `deepspeed stage 1 bucket 20000000`."""
    return " ".join([peer, *(str(word).lstrip("-") for word in options)])


def ratios_of(above, below):
    return [one / other for one, other in zip(above, below, strict=True)]


def ratio(rounds):
    """Of the ratios of each round: the median of all, and the interval of 95 % of medians of rounds, and ratios in them, drawn again; of
    too few rounds the least and the most of their medians. None of none: the two were never in a group."""
    if not rounds:
        return None
    median = statistics.median(value for one in rounds for value in one)
    if len(rounds) < SMALLEST_ROUNDS:
        return [median, min(map(statistics.median, rounds)), max(map(statistics.median, rounds))]
    draw = random.Random(1)
    medians = sorted(statistics.median(value for one in draw.choices(rounds, k=len(rounds)) for value in draw.choices(one, k=len(one)))
                     for _ in range(4000))
    return [median, medians[100], medians[3899]]


def show(lines, form):
    if form == "json":
        return json.dumps(lines, indent=1)
    if form == "csv":
        return "\n".join([",".join(lines[0]), *(",".join(str(value) for value in line.values()) for line in lines)])
    if "net_mib" in lines[0]:
        columns = ["model", "variant", "net MiB of a rank", "least .. most", "over its plan", "over 16 bytes a parameter / ranks"]
        return markdown(columns, [[line["model"], line["variant"], f"{line['net_mib']:.0f}", f"{line['low_mib']:.0f} .. {line['high_mib']:.0f}",
                                   "" if line["over_plan"] is None else f"**{line['over_plan']:.3f}**", f"{line['over_ideal_split']:.2f}"]
                                  for line in lines])
    interval = lines[0]["interval"]
    columns = ["model", "variant", "step s", "time over the floor's", interval, "tokens/s over the fastest peer's", interval, "losses differ by"]
    rows = []
    for line in lines:
        floor, peer = line["over_floor"], line["over_fastest_peer"]
        over_floor = ["", ""] if floor is None else [f"**{floor[0]:.3f}**", f"{floor[1]:.3f} .. {floor[2]:.3f}"]
        over_peer = ["", ""] if peer is None else [f"**{peer[0]:.2f}**", f"{peer[1]:.2f} .. {peer[2]:.2f}"]
        rows.append([line["model"], line["variant"], f"{line['step_s']:.3f}", *over_floor, *over_peer, f"{line['loss_difference']:.1e}"])
    return markdown(columns, rows)


def parser(description):
    """The options of every bench beside peers."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder of Strata")
    parser.add_argument("--python", type=pathlib.Path, required=True, help="the Python of the peers' environment; see setup.sh")
    parser.add_argument("--models", nargs="+", default=["pythia-14m", "pythia-160m"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2, help="steps of each run that are not timed")
    parser.add_argument("--set", action="append", default=[], help="a setting of Strata's runs, e.g. communicator.plugin=gloo; may be repeated")
    parser.add_argument("--format", choices=["markdown", "csv", "json"], default="markdown")
    return parser


def checked(parser):
    """The arguments; ends the process with a message where they are wrong."""
    arguments = parser.parse_args()
    arguments.build, arguments.python = arguments.build.resolve(), arguments.python.absolute()
    for needed in (arguments.build / "bin" / "strata", arguments.python):
        if not needed.is_file():
            parser.error(f"no {needed}")
    if arguments.rounds < 1 or not 0 <= arguments.warmup < arguments.steps:
        parser.error("--rounds is at least 1, and --warmup below --steps")
    return arguments


def main():
    options = parser(__doc__)
    options.add_argument("--tune", action="store_true", help="try the peers' settings first, and measure the fastest of each")
    options.add_argument("--memory", action="store_true", help="net memory instead of times")
    arguments = checked(options)
    with tempfile.TemporaryDirectory(prefix="strata-peers-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        bench.prepare()
        lines = []
        for model in arguments.models:
            began = time.monotonic()
            lines += bench.memory(model) if arguments.memory else bench.times(model)
            print(f"{model}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(show(lines, arguments.format))


if __name__ == "__main__":
    main()
