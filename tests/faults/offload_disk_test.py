"""Disks that state is offloaded to: failing, full, missing, and killed runs, after which nothing lies on them."""
import contextlib
import os
import signal
import subprocess
import time

import pytest
from layouts import DDP, ZERO3
from runs import Run, failing
from small_disk import disk_that_may_freeze, go_where_mounts_are_allowed, small_disk

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
    began = time.monotonic()
    with failing(faults.machine, disk, after):
        run = start(faults, layout, disk, [f"checkpoint.path={saved}", "checkpoint.every=1", "offload.optimizer.nvme.interface=threads",
                                           "offload.parameters.nvme.interface=threads"], slow=False)
        faults.expect(run, 3, "Input/output error (errno 5)", f"the file in {disk}")
    assert time.monotonic() - began < 15  # starting two ranks included
    assert os.listdir(disk) == []
    if os.path.isdir(saved) and os.path.islink(os.path.join(saved, "latest")):
        status, said = faults.machine.call("checkpoint", "info", os.path.join(saved, "latest"))
        assert status == 0, said


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("after", [0, 40])
def test_stuck(faults, layout, after):
    """A disk that ends no transfer any more: told after timeout_s. Nobody waits for it, the end of the process included."""
    disk, slots = faults.machine.new_folder(), ("optimizer", "parameters") if LAYOUTS[layout][1] == ZERO3 else ("optimizer",)
    more = [f"offload.{slot}.nvme.{option}" for slot in slots for option in ("interface=threads", "checksums=true", "timeout_s=2")]
    began = time.monotonic()
    with failing(faults.machine, disk, after, FAILING_HANGS="1"):
        faults.expect(start(faults, layout, disk, more, slow=False), 3, "the disk has completed no transfer for 2 s")
    assert time.monotonic() - began < 15  # starting two ranks and the 2 s included


@pytest.mark.full
@pytest.mark.parametrize("interface, asked", [("io_uring", False), ("threads", False), ("io_uring", True)])
def test_frozen(faults, interface, asked):
    """The same of a whole file system, with ranks that nobody can kill while it answers nothing: they are left behind, also when the run is
    asked to end twice."""
    if refused := go_where_mounts_are_allowed():
        pytest.skip(f"nothing can be mounted here, as root or in a user namespace: {refused}")
    disk, slots = os.path.join(faults.machine.new_folder(), "disk"), ("optimizer", "parameters")
    more = [f"offload.{slot}.nvme.{option}" for slot in slots for option in (f"interface={interface}", f"timeout_s={60 if asked else 2}")]
    with contextlib.ExitStack() as held:
        try:
            freeze = held.enter_context(disk_that_may_freeze(disk, 64 << 20))
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"no file system of its own in a file: {error}")
        run = start(faults, "zero3, 2 ranks", disk, more)
        assert run.wait_for_step(3), run.output
        freeze()
        began = time.monotonic()
        if asked:
            for _ in range(2):
                run.process.send_signal(signal.SIGTERM)
                time.sleep(1)
        faults.expect(run, 128 + signal.SIGTERM if asked else 3, *(["cannot be ended yet"] if asked else ["the disk has completed no transfer for 2 s"]))
        assert time.monotonic() - began < 40  # 2 to find it out, 10 for a rank that may yet end, 6 until the others are killed, 10 for these


@pytest.mark.parametrize("layout", LAYOUTS)
def test_full(faults, layout):
    """Before the first step, with what is needed and what there is."""
    if refused := go_where_mounts_are_allowed():
        pytest.skip(f"nothing can be mounted here, as root or in a user namespace: {refused}")
    disk = os.path.join(faults.machine.new_folder(), "disk")
    with small_disk(disk, 200 << 10, 400 << 10):
        run = faults.expect(start(faults, layout, disk, slow=False, quiet=False), 3, "are needed in", "are available", disk)
        assert "step 1/" not in run.output


@pytest.mark.parametrize("path, text", [("/no/such/folder", "path is /no/such/folder: No such file"), ("", "path is empty"), ("/etc/passwd", "is not a folder")])
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
