#!/usr/bin/env python3
"""How long pipeline stages idle, as measured and as predicted.

4 ranks are 4 stages of a tiny gpt_neox whose matrix products sleep (schedules/sleeping.cpp): all stages take equal times, and 4 ranks
can share 2 cores. Every schedule runs in turn, each round; a run's step is the one of median length of its traced ones
(`strata train --trace`). The prediction is the schedule's order with the times that were asked for; nothing of it is measured. Idle is
the share of the time from the first pass to the last in which a stage does not compute, the mean over stages. Then the steps on the
clock, from the end of one to the end of the next, with zero_bubble_v under `step_policy: speculative` beside them. Python's standard
library only.

  python3 tests/benchmarks/schedules.py --build build/release
  python3 tests/benchmarks/schedules.py --build build/release --forward 2 --input 2 --weight 1 --rounds 3
"""
import argparse, json, pathlib, statistics, sys, tempfile

from command import call
from table import markdown

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
STAGES, MICRO_BATCHES, LAYERS = 4, 8, 8
MATRICES = 4  # that a layer of gpt_neox multiplies with
CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved_1f1b": 2, "zero_bubble_h1": 1, "zero_bubble_v": 2, "dualpipe_v": 2, "l2l": 2, "sequential": 1, "pipedream": 1}
SPECULATIVE = "zero_bubble_v"
# Embedding and head compute nothing that sleeps: they are with the first and the last layers.
LAYERS_PER_CHUNK = {1: [3, 2, 2, 3], 2: [2, 1, 1, 1, 1, 1, 1, 2]}


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.strata = arguments.build / "bin" / "strata"
        call(["cmake", "--build", arguments.build, "--target", "strata_precision_sleeping"])
        call([self.strata, "data", "pack", REPOSITORY / "README.md", "-o", folder / "tokens.bin"])

    def predicted(self, scheduler):
        """Idle share, milliseconds from the first pass to the last, and of a speculative step."""
        chunks, times = CHUNKS[scheduler], self.arguments
        unit = 10  # of a chunk's: tenths of a matrix's milliseconds
        costs = [round(unit * time * 2 // chunks) for time in (times.forward, times.input, times.weight)]
        drawing = json.loads(call([self.strata, "schedule", "show", scheduler, "--stages", STAGES, "--micro-batches", MICRO_BATCHES, "--chunks", chunks,
                                   "--forward", costs[0], "--backward-input", costs[1], "--backward-weight", costs[2], "--format", "json"]))
        return drawing["bubble"], *(time * MATRICES / unit for time in (drawing["makespan"], drawing["speculative"]["step"]))

    def measured(self, scheduler, policy="plain"):
        """Idle share and milliseconds of the passes, of a traced step, and the median step's milliseconds."""
        trace, summary = self.folder / "trace.json", self.folder / "summary.json"
        settings = [
            f"data.path={self.folder / 'tokens.bin'}", "model.preset=none", "model.hidden_size=16", f"model.layers={LAYERS}", "model.heads=2",
            "model.intermediate_size=32", "model.vocabulary=256", "model.seq_len=8", "train.micro_batch=1", f"train.accumulation={MICRO_BATCHES}",
            f"train.steps={self.arguments.steps + 2}", f"parallel.pipeline={STAGES}", f"step_policy={policy}", f"parallel.chunks={CHUNKS[scheduler]}",
            f"parallel.layers_per_chunk={LAYERS_PER_CHUNK[CHUNKS[scheduler]]}", f"scheduler.plugin={scheduler}", "partitioner.plugin=ddp",
            "precision.plugin=sleeping", "train.clip=0", *(f"precision.sleeping.{key}_us={round(1000 * getattr(self.arguments, key))}" for key in ("forward", "input", "weight"))]
        call([self.strata, "train", REPOSITORY / "configs/quickstart.yaml", "--quiet", "--nproc", STAGES, "--oversubscribe", "--summary", summary, "--trace", trace,
              "--trace-steps", self.arguments.steps, *(word for setting in settings for word in ("--set", setting))], STRATA_PLUGIN_PATH=str(self.arguments.build / "benchmark_plugins"))
        found = json.loads(summary.read_text())
        if found["made_again"] > 0:
            sys.exit(f"tests/benchmarks/schedules.py: {found['made_again']} updates were made again, which is not what is measured")
        clock = 1000 * found["median_step_s"]
        if policy != "plain":
            return clock
        steps = sorted(json.loads(call([self.strata, "trace", trace, "--format", "json"]))["steps"], key=lambda step: step["measured_ms"])
        step = steps[len(steps) // 2]
        return statistics.mean(stage["idle_ms"] for stage in step["per_stage"]) / step["measured_ms"], step["measured_ms"], clock


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--schedulers", nargs="+", choices=CHUNKS, default=list(CHUNKS))
    for name, text in (("forward", "forward"), ("input", "backward, for the gradient of the input"), ("weight", "backward, for the gradient of a weight")):
        parser.add_argument(f"--{name}", type=float, default=2.5, help=f"milliseconds of a product of the {text}")
    parser.add_argument("--steps", type=int, default=5, help="that are traced in each run")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    arguments.build = arguments.build.absolute()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        found = {scheduler: [] for scheduler in arguments.schedulers}
        speculative = []
        for _ in range(arguments.rounds):
            for scheduler in arguments.schedulers:
                found[scheduler].append(bench.measured(scheduler))
            if SPECULATIVE in found:
                speculative.append(bench.measured(SPECULATIVE, "speculative"))
        rows, clocks = [], []
        for scheduler, runs in found.items():
            idle, length, ahead = bench.predicted(scheduler)
            idles, lengths, clock = zip(*runs)
            clocks.append([scheduler, "plain", length, clock])
            if scheduler == SPECULATIVE:
                clocks.append([scheduler, "speculative", ahead, speculative])
            rows.append([scheduler, str(CHUNKS[scheduler]), f"{100 * idle:.1f} %", f"{100 * statistics.median(idles):.1f} %",
                         f"{100 * min(idles):.1f} .. {100 * max(idles):.1f} %", f"{length:.0f} ms", f"{statistics.median(lengths):.0f} ms",
                         f"{statistics.median(lengths) / length:.3f}"])
        print(markdown(["step", "policy", "predicted", "on the clock", "least .. most", "ratio"],
                       [[name, policy, f"{length:.0f} ms", f"{statistics.median(clock):.0f} ms", f"{min(clock):.0f} .. {max(clock):.0f} ms",
                         f"{statistics.median(clock) / length:.3f}"] for name, policy, length, clock in clocks]))
        print(markdown(["schedule", "chunks", "idle predicted", "idle measured", "least .. most", "passes predicted", "passes measured", "ratio"], rows))


if __name__ == "__main__":
    main()
