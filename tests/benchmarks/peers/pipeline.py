#!/usr/bin/env python3
"""Two pipeline stages compared with two data-parallel ranks, of Strata and of DeepSpeed, step by step in turns as in run.py.

A step is of --micro-batches samples of 256 tokens, each a micro-batch. Data parallelism gives half of them to each rank; a pipeline has
all of them pass through both ranks, one thread each. DeepSpeed's pipeline is PipelineModule (1F1B) with ZeRO stage 1, its data
parallelism ZeRO stage 1; the faster one of its two ways of cutting layers is measured. The floor is one process of plain torch with two
threads and micro-batches of two samples. The rest (weights, tokens, losses that must agree, ratios and their spread) is as in run.py.

  python3 tests/benchmarks/peers/pipeline.py --python FOLDER/bin/python3 --build build/release --models pythia-160m --rounds 2
"""
import pathlib
import tempfile

import run
from run import DEEPSPEED, FLOOR, RANKS, Bench

SCHEDULERS = {"1f1b": 1, "interleaved_1f1b": 2, "zero_bubble_h1": 1, "zero_bubble_v": 2}  # chunks of a stage
PARTITIONS = ["parameters", "uniform"]
STAGE = ["--stage", 1]


class PipelineBench(Bench):
    def peer_command(self, model, peer, options, steps):
        # run.py gives every rank its part of a step of RANKS samples
        ranks = {"torch": RANKS, "deepspeed": RANKS, "deepspeed-pipeline": 1}[peer]
        return [*super().peer_command(model, peer, options, steps), "--accumulation", self.arguments.micro_batches // ranks]

    def data_parallel(self, model, partitioner):
        return self.of_strata(model, [f"partitioner.plugin={partitioner}", f"train.accumulation={self.arguments.micro_batches // RANKS}"], RANKS)

    def pipeline(self, model, scheduler):
        return self.of_strata(model, ["partitioner.plugin=ddp", f"train.accumulation={self.arguments.micro_batches}", f"parallel.pipeline={RANKS}",
                                      f"scheduler.plugin={scheduler}", f"parallel.chunks={SCHEDULERS[scheduler]}"], RANKS)

    def times(self, model):
        cut = [(f"deepspeed pipeline, cut by {partition}", self.of_peer(model, "deepspeed-pipeline", *STAGE, "--partition", partition)) for partition in PARTITIONS]
        peer, variant = self.faster(*cut)
        both = {FLOOR: self.of_peer(model, "torch"), peer: variant}
        others = {"deepspeed data parallel, stage 1": self.of_peer(model, "deepspeed", *DEEPSPEED)}
        others |= {f"strata data parallel, {partitioner}": self.data_parallel(model, partitioner) for partitioner in ("ddp", "zero1")}
        others |= {f"strata pipeline, {scheduler}": self.pipeline(model, scheduler) for scheduler in SCHEDULERS}
        chosen = [name for name in others if any(text in name for text in self.arguments.only)]
        return self.timed(model, [{**both, name: others[name]} for name in chosen], peer)


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step")
    parser.add_argument("--only", nargs="+", default=[""], help="variants whose names have one of these texts, such as pipeline")
    arguments = run.checked(parser)
    if arguments.micro_batches < RANKS or arguments.micro_batches % RANKS:
        parser.error(f"--micro-batches is a multiple of {RANKS}: each rank gets as many")
    with tempfile.TemporaryDirectory(prefix="strata-pipelines-") as folder:
        bench = PipelineBench(arguments, pathlib.Path(folder))
        bench.prepare()
        lines = [line for model in arguments.models for line in bench.times(model)]
    print(run.show(lines, arguments.format))


if __name__ == "__main__":
    main()
