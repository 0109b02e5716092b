#!/usr/bin/env python3
"""Two tensor-parallel ranks compared with two that share the state as zero3, of Strata, and torch's own tensor parallelism, step by
step in turns as in run.py.

A step is of two samples of 256 tokens. Tensor-parallel ranks compute both together; zero3 gives one to each. torch's ranks share Llama's
layers by its parallelize_module (DTensor), the loss by loss_parallel, and reduce the stream after attention and MLP. The floor is one
process of plain torch with two threads. In bf16 all have fp32 master weights, and losses are compared to a hundredth.

  python3 tests/benchmarks/peers/tensor.py --python FOLDER/bin/python3 --build build/release --models llama-160m --rounds 3
"""
import pathlib
import tempfile

import run
from run import FLOOR, RANKS, Bench

SAMPLES = 2  # of a step
TENSOR = ["parallel.tensor=2", f"train.micro_batch={SAMPLES}"]
LAYOUTS = {"zero3": ["partitioner.plugin=zero3"], "tensor 2": TENSOR, "tensor 2, sequence": [*TENSOR, "parallel.sequence=true"]}


class TensorBench(Bench):
    def prepare(self):
        self.arguments.set.append("model.plugin=llama")
        super().prepare()

    def times(self, model):
        lines = []
        for precision in self.arguments.precisions:
            self.tolerance = 1e-4 if precision == "fp32" else 1e-2
            words = [] if precision == "fp32" else ["--bf16"]
            peer = f"torch tensor 2, {precision}"
            both = {FLOOR: self.of_peer(model, "torch", *words), peer: self.of_peer(model, "tensor", *words, "--micro-batch", SAMPLES)}
            groups = [{**both, f"strata {name}, {precision}": self.of_strata(model, [*settings, f"precision.plugin={precision}"], RANKS)}
                      for name, settings in LAYOUTS.items()]
            lines += self.timed(model, groups, peer)
        return lines


def main():
    parser = run.parser(__doc__)
    parser.set_defaults(models=["llama-160m"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    arguments = run.checked(parser)
    with tempfile.TemporaryDirectory(prefix="strata-tensor-") as folder:
        bench = TensorBench(arguments, pathlib.Path(folder))
        bench.prepare()
        lines = [line for model in arguments.models for line in bench.times(model)]
    print(run.show(lines, arguments.format))


if __name__ == "__main__":
    main()
