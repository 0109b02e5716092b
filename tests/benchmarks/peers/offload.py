#!/usr/bin/env python3
"""Strata's zero3 with state in host memory and on a disk compared with DeepSpeed's stage 3 with the same, in turns as in run.py.

A turn is of three steps, of which the first is not timed: the disk has been idle in the others' turn, so it may have read ahead for that
step, and its writes may end in a turn of others. Two runs take turns at a time, of the floor, DeepSpeed and a variant: with pythia-410m
three do not fit in 24 GiB.

Two ranks with a thread each, bf16 with fp32 master weights, one sample of 256 tokens a rank. The floor is Strata's zero3 with nothing
offloaded; losses must be within a hundredth of its. "gradients in bf16" is DeepSpeed's setting: with `bf16.enabled` it keeps and reduces
gradients in bf16 unless `data_types.grad_accum_dtype` and `communication_data_type` say otherwise; Strata's default is fp32 for both. With
a disk also `step_policy: delayed`, whose updates are made in the next step, beside its backward; and "more memory": gradients that stay,
and half of the updates at the end of the step, whose state, up to 640 MiB, comes beside the backward. That is still less than
DeepSpeed's buffers, which hold all of a rank's state at once (sub_group_size 1e9). DeepSpeed compiles its host optimizer and its disk
operator when it is first run, which takes minutes and, for the disk, libaio's headers: that run is made before anything is timed.

  python3 tests/benchmarks/peers/offload.py --python FOLDER/bin/python3 --build build/release --disk FOLDER --models pythia-70m
"""
import fnmatch
import pathlib
import tempfile

import run
from run import BUCKETS, RANKS, Bench

HOMES = {"optimizer on cpu": {"optimizer": "cpu"}, "optimizer and parameters on cpu": {"optimizer": "cpu", "parameters": "cpu"},
         "optimizer on nvme": {"optimizer": "nvme"}, "optimizer and parameters on nvme": {"optimizer": "nvme", "parameters": "nvme"}}


MORE_MEMORY = ["offload.updates_at_end=0.5", "offload.read_ahead=320MiB", "offload.gradients_ratio=0"]
BF16_GRADIENTS = ["precision.accumulation=bf16", "precision.reduction=bf16"]


class OffloadBench(Bench):
    floor, tolerance, turn = "strata zero3, nothing offloaded", 1e-2, 3

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.compiled = set()  # the homes that DeepSpeed has compiled its code for

    def deepspeed(self, model, homes):
        options = [word for what, device in homes.items() for word in (f"--offload-{what}", device)]
        return self.of_peer(model, "deepspeed", "--stage", 3, "--bucket", BUCKETS[0], "--bf16", "--nvme-path", self.arguments.disk, *options)

    def zero3(self, model, homes, *more):
        settings = [*more, "partitioner.plugin=zero3", "precision.plugin=bf16"]
        for what, device in homes.items():
            settings.append(f"offload.{what}.plugin={device}")
            if device == "nvme":
                settings.append(f"offload.{what}.nvme.path={self.arguments.disk}")
        return self.of_strata(model, settings, RANKS)

    def comparable_steps(self, name):
        return 1 if name.endswith("delayed") else None  # from then on it is a step behind

    def variants(self, home, homes, model):
        made = {"": self.zero3(model, homes), ", gradients in bf16": self.zero3(model, homes, *BF16_GRADIENTS)}
        if "nvme" in homes.values():
            made[", delayed"] = self.zero3(model, homes, "step_policy=delayed")
            made[", more memory"] = self.zero3(model, homes, *MORE_MEMORY)
            made[", more memory, gradients in bf16"] = self.zero3(model, homes, *MORE_MEMORY, *BF16_GRADIENTS)
        named = {f"{home}{what}": variant for what, variant in made.items()}
        return {f"strata zero3, {name}": variant for name, variant in named.items() if any(fnmatch.fnmatch(name, only) for only in self.arguments.only)}

    def times(self, model):
        lines, floor = [], {self.floor: self.zero3(model, {})}
        for home, homes in HOMES.items():
            chosen = self.variants(home, homes, model)
            if not chosen:
                continue
            peer = {f"deepspeed stage 3, {home}": self.deepspeed(model, homes)}
            if not self.compiled.issuperset(homes.values()):
                self.together(peer, steps=1)
                self.compiled.update(homes.values())
            groups = [] if self.arguments.less_memory else [{**floor, **peer}]
            for name, variant in chosen.items():
                groups += [{**floor, name: variant}, {**peer, name: variant}]
            lines += self.timed(model, groups, *peer)
        return lines


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--disk", type=pathlib.Path, required=True, help="a folder on the disk that nvme stands for")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME",
                        help="only these lines of Strata, such as 'optimizer on cpu' or '*nvme, more memory'")
    parser.add_argument("--less-memory", action="store_true", help="do not run the floor and DeepSpeed beside each other, which takes 25 GB with pythia-410m on nvme")
    parser.set_defaults(steps=6, warmup=3)
    arguments = run.checked(parser)
    if arguments.steps % OffloadBench.turn or arguments.steps <= OffloadBench.turn:
        parser.error(f"--steps is a multiple of a turn's {OffloadBench.turn} and more than one turn, the first of which is warm-up")
    arguments.disk = arguments.disk.resolve()
    with tempfile.TemporaryDirectory(prefix="strata-offload-") as folder:
        bench = OffloadBench(arguments, pathlib.Path(folder))
        bench.prepare()
        lines = [line for model in arguments.models for line in bench.times(model)]
    if not lines:
        parser.error(f"--only {' '.join(arguments.only)} names none of the lines, such as 'optimizer on cpu, gradients in bf16'")
    print(run.show(lines, arguments.format))


if __name__ == "__main__":
    main()
