"""Disks that state is offloaded to: failing, full, missing, and killed runs, after which nothing lies on them."""
import os
import signal
import time

import pytest
from layouts import DDP, ZERO3
from place import build_folder
from runs import Run
from small_disk import go_where_mounts_are_allowed, small_disk

LAYOUTS = {"ddp, 1 rank": (1, DDP), "zero3, 2 ranks": (2, ZERO3)}


def start(faults, layout, disk, more=(), **options):
    ranks, settings = LAYOUTS[layout]
    slots = ["optimizer"] + (["parameters"] if settings == ZERO3 else [])
    offload = [f"offload.{slot}={{plugin: nvme, path: {disk}}}" for slot in slots]
    return Run(faults.machine, settings + offload + list(more), ranks, **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("after", [0, 40, 300])
def test_failing(faults, layout, after):
    """EIO, at the first transfer or later: told with the folder and the error, on a run of any size, within seconds; a checkpoint before it
    stays whole."""
    disk, saved = faults.machine.new_folder(), faults.folder()
    ranks, settings = LAYOUTS[layout]
    environment = {"LD_PRELOAD": str(build_folder() / "lib/libfailing_disk.so"), "FAILING_FOLDER": disk, "FAILING_AFTER": str(after)}
    began = time.monotonic()
    faults.machine.environment.update(environment)
    try:
        run = start(faults, layout, disk, [f"checkpoint.path={saved}", "checkpoint.every=1", "offload.optimizer.nvme.interface=threads",
                                           "offload.parameters.nvme.interface=threads"], slow=False)
        faults.expect(run, 3, "Input/output error (errno 5)", f"the file in {disk}")
    finally:
        for name in environment:
            del faults.machine.environment[name]
    assert time.monotonic() - began < 15  # starting two ranks included
    assert os.listdir(disk) == []
    if os.path.isdir(saved) and os.path.islink(os.path.join(saved, "latest")):
        status, said = faults.machine.call("checkpoint", "info", os.path.join(saved, "latest"))
        assert status == 0, said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_full(faults, layout):
    """Before the first step, with what is needed and what there is."""
    if refused := go_where_mounts_are_allowed():
        pytest.skip(f"nothing can be mounted here, as root or in a user namespace: {refused}")
    disk = os.path.join(faults.machine.new_folder(), "disk")
    with small_disk(disk, 200 << 10, 400 << 10):
        run = faults.expect(start(faults, layout, disk, slow=False, quiet=False), 3, "are needed in", "are available", disk)
        assert "step 1/" not in run.output


@pytest.mark.parametrize("path, text", [("/no/such/folder", "there is no folder /no/such/folder"), ("", "path names no folder"), ("/etc/passwd", "is no folder")])
def test_no_folder(faults, path, text):
    faults.expect(start(faults, "ddp, 1 rank", f'"{path}"', slow=False), 2, text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed(faults, layout):
    """In the middle of a step: nothing is left in the folder, although nobody could clean up."""
    disk = faults.machine.new_folder()
    run = start(faults, layout, disk)
    assert run.wait_for_step(3), run.output
    for rank in run.ranks():
        os.kill(rank, signal.SIGKILL)
    run.finish()
    assert os.listdir(disk) == []
