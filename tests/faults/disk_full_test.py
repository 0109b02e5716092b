"""A disk that is full is a small one that the test mounts: skipped where mounting is not allowed."""
import os

import pytest
from layouts import FEW, few_of
from small_disk import go_where_mounts_are_allowed, small_disk


@pytest.fixture(scope="module", autouse=True)
def mounts():
    if refused := go_where_mounts_are_allowed():
        pytest.skip(f"nothing can be mounted here, as root or in a user namespace: {refused}")


@pytest.mark.parametrize("layout", few_of(FEW, 1))
def test_disk_full(faults, layout):
    """On a file system that holds the first checkpoint and not the second."""
    disk, size = os.path.join(faults.machine.new_folder(), "disk"), 1100 << 10  # a checkpoint has 800 KiB
    with small_disk(disk, size, 16 * size) as enlarge:
        folder = os.path.join(disk, "checkpoints")
        run = faults.expect(faults.start(layout, folder, ["checkpoint.every=5"], slow=False), 3, "No space left on device", f"{folder}/step-10.")
        assert sorted(os.listdir(folder)) == ["latest", "step-5"] and os.readlink(os.path.join(folder, "latest")) == "step-5", run.output
        enlarge()
        assert faults.go_on(layout, folder) == 5
