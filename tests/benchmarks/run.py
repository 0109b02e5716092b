#!/usr/bin/env python3
"""The engine's step compared with a hand-written libtorch loop of the same model (libtorch_loop.cpp): one rank, runs interleaved.

Builds the loop in the given build folder, packs this repository's own sources into tokens and writes initial weights, then runs
engine and loop in turns: forwards in one half of a round, backwards in the other, so that a machine that grows slower or faster
meets both alike. A run's step time is the median of its steps after the warm-up ones; a run of the engine and the run of the loop in
the same half of a round are a pair. The table holds the median over pairs of engine time / loop time, and the interval in which
95 % of medians lie when the pairs are drawn again; of fewer than six pairs the least and the most, and no such label. Every loss and every gradient's norm of every run must agree; else nothing is
compared and the exit status is 1. Python's standard library only.

  python3 tests/benchmarks/run.py --build build/release
  python3 tests/benchmarks/run.py --build build/release --presets pythia-14m:4 --threads 1 --format csv
"""
import argparse, json, os, pathlib, resource, statistics, subprocess, sys, tempfile, time

from table import interval, interval_name, markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["core", "sdk", "plugins", "examples", "tests", "cmake", "README.md"]
LEARNING_RATE, CLIP = 1e-3, 1.0
# Huge pages under large tensors, which the engine asks for by itself; so the loop has them too.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
# glibc's malloc then gives no large block back to the system, and so takes no page faults for it in the next step.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "67108864"}


def fail(message):
    sys.exit(f"tests/benchmarks/run.py: {message}")


def call(command, environment=None):
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"exit status {done.returncode} of {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        self.loop = arguments.build / "bin" / "libtorch_loop"
        self.tokens = folder / "tokens.bin"

    def train(self, *settings_and_options, environment=None):
        settings = ["train.clip=%g" % CLIP, f"model.seq_len={self.arguments.seq_len}", f"data.path={self.tokens}",
                    "learning_rate.plugin=constant", "learning_rate.warmup=0"]
        words = [word for setting in settings for word in ("--set", setting)]
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", *words, *settings_and_options], environment)

    def prepare(self, presets):
        if not self.strata.is_file():
            fail(f"no {self.strata}: build first (cmake --preset release && cmake --build build/release), then give that folder as --build")
        call(["cmake", "--build", self.arguments.build, "--target", "libtorch_loop"])
        call([self.strata, "data", "pack", *[REPOSITORY / text for text in TEXTS], "-o", self.tokens])
        for preset in presets:  # a step at learning rate 0 leaves the initial values as they are
            model, _, vocabulary = preset.partition("@")
            self.train("--set", f"model.preset={model}", "--set", f"model.vocabulary={vocabulary or 0}", "--set", "learning_rate.base=0", "--set", "train.steps=1", "--set",
                       "train.micro_batch=1", "--set", "partitioner.plugin=ddp", "--export", self.folder / preset)

    # Losses, gradient norms and step times of one run; `who` is the loop, a partitioner, or a partitioner@small: without huge pages.
    def run(self, who, preset, batch, environment, steps):
        if who == "loop":
            out = call([self.loop, self.folder / preset, self.tokens, steps, batch, self.arguments.seq_len,
                        LEARNING_RATE, CLIP], environment)
        else:
            metrics = self.folder / "metrics.jsonl"
            metrics.unlink(missing_ok=True)
            who, _, pages = who.partition("@")
            if pages == "small":
                environment = dict(environment, THP_MEM_ALLOC_ENABLE="0")
            self.train("--set", f"model.init={self.folder / preset}", "--set", "model.preset=none", "--set",
                       f"learning_rate.base={LEARNING_RATE}", "--set", f"train.steps={steps}", "--set",
                       f"train.micro_batch={batch}", "--set", f"partitioner.plugin={who}", "--metrics", metrics, environment=environment)
            out = metrics.read_text()
        records = [json.loads(line) for line in out.splitlines()]
        return tuple([record[key] for record in records] for key in ("loss", "grad_norm", "step_s"))

    # The processor time of a step: that of a run less that of a run of the warm-up steps alone, over the steps between.
    def processor_seconds(self, who, preset, batch, environment):
        def used(steps):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            result = self.run(who, preset, batch, environment, steps)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result
        warmup = max(self.arguments.warmup, 1)
        short, _ = used(warmup)
        long, (losses, norms, _) = used(self.arguments.steps)
        return losses, norms, (long - short) / (self.arguments.steps - warmup)

    def measure(self, who, preset, batch, environment):
        if self.arguments.clock == "processor":
            return self.processor_seconds(who, preset, batch, environment)
        losses, norms, seconds = self.run(who, preset, batch, environment, self.arguments.steps)
        return losses, norms, statistics.median(seconds[self.arguments.warmup:])

    # One line of the table for each partitioner.
    def compare(self, preset, batch, threads, memory):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), **HUGE_PAGES)
        if memory == "kept":
            environment.update(KEPT_MEMORY)
        order = [self.arguments.partitioners[0], "loop", *self.arguments.partitioners[1:]]
        seconds, first, difference = {who: [] for who in order}, None, {who: 0.0 for who in order}
        for half in range(2 * self.arguments.rounds):
            for who in order if half % 2 == 0 else reversed(order):
                losses, norms, step_seconds = self.measure(who, preset, batch, environment)
                seconds[who].append(step_seconds)
                first = first or (losses, norms)
                for what, mine, others in (("loss", losses, first[0]), ("norm of the gradient", norms, first[1])):
                    for step, (one, other) in enumerate(zip(mine, others, strict=True)):
                        apart = abs(one - other) / abs(other)
                        if not apart <= self.arguments.tolerance * (1 if what == "loss" else 100):
                            fail(f"{preset}, batch {batch}, step {step}: the {what} of {who} is {one}, and of the first run, {order[0]}, "
                                 f"{other}: {apart:.1e} apart, so they do not do the same work")
                        if what == "loss":
                            difference[who] = max(difference[who], apart)
        lines = []
        for who in self.arguments.partitioners:
            ratios = [engine / loop for engine, loop in zip(seconds[who], seconds["loop"], strict=True)]
            low, high = interval(ratios)
            lines.append({"model": preset, "batch": batch, "seq_len": self.arguments.seq_len, "threads": threads, "memory": memory,
                          "partitioner": who, "ratio": statistics.median(ratios), "interval": interval_name(len(ratios)), "low": low, "high": high, "pairs": len(ratios),
                          "engine_s": statistics.median(seconds[who]), "loop_s": statistics.median(seconds["loop"]),
                          "loss_difference": max(difference["loop"], difference[who])})
        return lines


def show(lines, form):
    if form == "json":
        return json.dumps(lines, indent=1)
    if form == "csv":
        return "\n".join([",".join(lines[0]), *(",".join(str(value) for value in line.values()) for line in lines)])
    columns = ["model", "batch x length", "threads", "freed memory", "partitioner", "engine / loop", interval_name(lines[0]["pairs"]), "pairs",
               "engine s", "loop s", "losses differ by"]
    return markdown(columns, [[line["model"], f"{line['batch']} x {line['seq_len']}", str(line["threads"]), line["memory"], line["partitioner"],
                               f"**{line['ratio']:.3f}**", f"{line['low']:.3f} .. {line['high']:.3f}", str(line["pairs"]), f"{line['engine_s']:.3f}",
                               f"{line['loop_s']:.3f}", f"{line['loss_difference']:.1e}"] for line in lines])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder configured with STRATA_BUILD_TESTS=ON")
    parser.add_argument("--presets", nargs="+", default=["pythia-14m:4", "pythia-14m:8", "pythia-70m:4", "pythia-14m@512:4", "pythia-70m@512:4"],
                        metavar="MODEL[@VOCABULARY]:BATCH")
    parser.add_argument("--partitioners", nargs="+", default=["ddp", "zero3"])
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1], help="values of OMP_NUM_THREADS")
    parser.add_argument("--memory", nargs="+", choices=["returned", "kept"], default=["returned"],
                        help="what malloc does with freed large blocks; returned is glibc's default")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall",
                        help="processor: user and system time of the process, for a machine that others use too")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5, help="each gives two pairs")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3, help="steps of each run that are not timed")
    parser.add_argument("--tolerance", type=float, default=3e-5, help="how far losses may differ, relatively; norms of the gradient, 100 times that: libtorch's sums "
                             "tens of millions of squares in one fp32 number")
    parser.add_argument("--goal", type=float, default=1.03, help="said to be met or missed on stderr")
    parser.add_argument("--format", choices=["markdown", "csv", "json"], default="markdown")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    if arguments.rounds < 1 or not 0 <= arguments.warmup < arguments.steps or arguments.steps < 2:
        parser.error("--rounds is at least 1, --steps 2, and --warmup below --steps")
    return arguments


def main():
    arguments = parse()
    cases = [(preset, int(batch)) for preset, _, batch in (case.partition(":") for case in arguments.presets)]
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        bench.prepare(sorted({preset for preset, _ in cases}))
        lines = []
        for memory in arguments.memory:
            for threads in arguments.threads:
                for preset, batch in cases:
                    started = time.monotonic()
                    lines += bench.compare(preset, batch, threads, memory)
                    print(f"{preset} batch {batch}, {threads} threads: {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(show(lines, arguments.format))
    missed = [line for line in lines if line["ratio"] > arguments.goal]
    print(f"goal: at most {arguments.goal}; missed in {len(missed)} of {len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
