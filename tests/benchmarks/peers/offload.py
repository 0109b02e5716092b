#!/usr/bin/env python3
"""Strata's zero3 with state in host memory and on a disk beside DeepSpeed's stage 3 with the same, step by step in turns as in run.py.

Two ranks with a thread each, bf16 with fp32 master weights, one sample of 256 tokens a rank. The floor is Strata's zero3 with nothing
offloaded; losses must be within a hundredth of its. "gradients in bf16" is DeepSpeed's setting: with `bf16.enabled` it keeps and reduces
gradients in bf16 unless `data_types.grad_accum_dtype` and `communication_data_type` say otherwise; Strata's default is fp32 for both. With
a disk also `step_policy: delayed`, whose updates are made in the next step, beside its backward; and "more memory": gradients that stay,
and half of the updates at the end of the step, whose state, up to 512 MiB, comes beside the backward. That is still less than
DeepSpeed's buffers, which hold all of a rank's state at once (sub_group_size 1e9). DeepSpeed compiles its host optimizer and its disk
operator when it is first run, which takes minutes and, for the disk, libaio's headers: that run is made before anything is timed.

  python3 tests/benchmarks/peers/offload.py --python FOLDER/bin/python3 --build build/release --disk FOLDER --models pythia-70m
"""
import pathlib
import tempfile

import run
from run import BUCKETS, RANKS, Bench

HOMES = {"optimizer on cpu": {"optimizer": "cpu"}, "optimizer and parameters on cpu": {"optimizer": "cpu", "parameters": "cpu"},
         "optimizer on nvme": {"optimizer": "nvme"}, "optimizer and parameters on nvme": {"optimizer": "nvme", "parameters": "nvme"}}


MORE_MEMORY = ["offload.updates_at_end=0.5", "offload.read_ahead=512MiB", "offload.gradients_ratio=0"]
BF16_GRADIENTS = ["precision.accumulation=bf16", "precision.reduction=bf16"]


class OffloadBench(Bench):
    floor, tolerance = "strata zero3, nothing offloaded", 1e-2

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

    def times(self, model):
        lines = []
        for name, homes in HOMES.items():
            if self.arguments.only not in name:
                continue
            peer = f"deepspeed stage 3, {name}"
            self.together({peer: self.deepspeed(model, homes)}, steps=2)  # compiles
            group = {self.floor: self.zero3(model, {}), peer: self.deepspeed(model, homes), f"strata zero3, {name}": self.zero3(model, homes),
                     f"strata zero3, {name}, gradients in bf16": self.zero3(model, homes, *BF16_GRADIENTS)}
            if "nvme" in homes.values():
                group[f"strata zero3, {name}, delayed"] = self.zero3(model, homes, "step_policy=delayed")
                group[f"strata zero3, {name}, more memory"] = self.zero3(model, homes, *MORE_MEMORY)
            lines += self.timed(model, [group], peer)
        return lines


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--disk", type=pathlib.Path, required=True, help="a folder on the disk that nvme stands for")
    parser.add_argument("--only", default="", help="only the lines whose name has this text, such as nvme")
    arguments = run.checked(parser)
    arguments.disk = arguments.disk.resolve()
    with tempfile.TemporaryDirectory(prefix="strata-offload-") as folder:
        bench = OffloadBench(arguments, pathlib.Path(folder))
        bench.prepare()
        lines = [line for model in arguments.models for line in bench.times(model)]
    print(run.show(lines, arguments.format))


if __name__ == "__main__":
    main()
