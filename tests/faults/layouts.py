"""The layouts that runs are interrupted at, and helpers for such runs: start, expect, resume, compare with the uninterrupted one."""
import os
import tempfile

import pytest
from runs import Finished, Run

ZERO3, DDP = ["partitioner.plugin=zero3"], ["partitioner.plugin=ddp"]
STAGES = ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]
# name: ranks, settings; the ones in the default run first
LAYOUTS = {
    "ddp, 1 rank": (1, DDP),
    "zero3, 2 ranks, cpu offload, bf16": (2, ZERO3 + ["offload.optimizer.plugin=cpu", "precision.plugin=bf16"]),
    "zero3, 2 stages": (2, ZERO3 + STAGES),
    "ddp, 2 ranks": (2, DDP),
    "zero3, 2 ranks, shared memory": (2, ZERO3 + ["communicator.plugin=shm"]),
    "zero3, 1 rank": (1, ZERO3),
    "zero3, 2 ranks": (2, ZERO3),
    "ddp, 2 stages, bf16": (2, DDP + STAGES + ["precision.plugin=bf16"]),
    "ddp, 2 ranks, bf16": (2, DDP + ["precision.plugin=bf16"]),
    "ddp, 1 rank, cpu offload": (1, DDP + ["offload.optimizer.plugin=cpu"]),
    "zero3, 4 ranks, 2 stages, cpu offload": (4, ZERO3 + STAGES + ["offload.optimizer.plugin=cpu"]),
}

# A plugin whose own state changes while it runs: the scale goes down at first and up after two steps.
FP16 = ["precision.plugin=fp16", "precision.fp16.initial_scale_power=30", "precision.fp16.loss_scale_window=2", "precision.fp16.hysteresis=1"]
FEW = list(LAYOUTS)[:3]
LAYOUTS["zero3, 2 ranks, fp16"] = (2, ZERO3 + FP16)
# An optimizer that keeps rows and columns, which every rank has and a checkpoint holds once.
ADAFACTOR = ["optimizer={plugin: adafactor}"]
LAYOUTS["ddp, 1 rank, adafactor"] = (1, DDP + ADAFACTOR)
# Nothing is left in the folder, so it can be any.
DISK = [f"offload.{slot}={{plugin: nvme, path: {tempfile.gettempdir()}}}" for slot in ("parameters", "optimizer")]
LAYOUTS["zero3, 2 ranks, nvme offload, bf16"] = (2, ZERO3 + DISK + ["precision.plugin=bf16"])
LAYOUTS["zero3, 2 ranks, adafactor"] = (2, ZERO3 + ADAFACTOR)
LAYOUTS["ddp, 2 ranks, onebit_adam"] = (2, DDP + ["optimizer={plugin: onebit_adam, freeze_step: 6}", "train.clip=0"])
# It exchanges at updates 7, 8, 12, 16 and 20.
LAYOUTS["ddp, 2 ranks, zero_one_adam"] = (2, DDP + [
    "optimizer={plugin: zero_one_adam, var_freeze_step: 6, var_update_scaler: 2, local_step_scaler: 1, local_step_clipper: 4}", "train.clip=0"])
# Errors that each rank keeps of what it sent.
LAYOUTS["zero3, 2 ranks, compressed"] = (2, ZERO3 + [f"partitioner.zero3.{option}" for option in (
    "weights_on_wire=int8", "gradients_on_wire=int4", "error_feedback=true", "error_reset=7")])


def few_of(layouts, count):
    """Parameters of a test: the first `count` always, the others with --full."""
    return [pytest.param(layout, marks=[] if number < count else pytest.mark.full) for number, layout in enumerate(layouts)]


class Faults:
    def __init__(self, machine):
        self.machine, self.references = machine, {}

    def reference(self, layout):
        """The uninterrupted run, once for each layout."""
        if layout not in self.references:
            ranks, settings = LAYOUTS[layout]
            weights = os.path.join(self.machine.new_folder(), "weights")
            run = Run(self.machine, settings, ranks, export=weights, slow=False)
            self.expect(run, 0)
            self.references[layout] = Finished(run.summary["losses"], weights)
        return self.references[layout]

    def start(self, layout, folder, more=(), **options):
        ranks, settings = LAYOUTS[layout]
        return Run(self.machine, settings + [f"checkpoint.path={folder}", *more], ranks, **options)

    def expect(self, run, status, *texts):
        found = run.finish()
        assert found == status, f"exit status {found} instead of {status}: {run.output}"
        for text in texts:
            assert text in run.output, f"does not say '{text}': {run.output}"
        return run

    def go_on(self, layout, folder, resume="latest", more=()):
        """Resumes and runs to the end, which must be the uninterrupted run's, bit by bit. Returns the step it went on from."""
        weights = os.path.join(self.machine.new_folder(), "weights")
        run = self.expect(self.start(layout, folder, more, resume=resume, export=weights, slow=False), 0)
        self.compare(layout, run, weights)
        return run.summary["first_step"] - 1

    def compare(self, layout, run, weights):
        reference, first = self.reference(layout), run.summary["first_step"] - 1
        mine = Finished(run.summary["losses"], weights)
        assert mine.losses == reference.losses[first:], f"from step {first + 1} on"
        different = [name for name in reference.weights if mine.weights.get(name) != reference.weights[name]]
        assert not different, f"of {len(reference.weights)} tensors"

    def folder(self):
        return os.path.join(self.machine.new_folder(), "checkpoints")
