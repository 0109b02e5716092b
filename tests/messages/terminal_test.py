"""Output of `strata` on a terminal."""
import re

import pytest


def test_pipes_of_mpirun(shell):
    """mpirun gives rank 0 a terminal and copies what is written there to its own output."""
    rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    seen = shell.on_terminal("train", shell.config, environment=rank)
    assert "\033" not in seen and "step 2/2" in seen, f"escape codes, or no step: {seen!r}"
    assert "\033[K" in shell.on_terminal("train", shell.config), "no bar is drawn on a terminal of ours"


@pytest.mark.parametrize("ranks", [[], ["--nproc", "2"]], ids=["1 rank", "2 ranks"])
def test_asked_to_stop(shell, ranks):
    """The answer to a signal stands on a line of its own, not behind the bar."""
    seen = shell.on_terminal("train", shell.config, "--set", "train.steps=100000", *ranks, signalled=b"step 3/")
    before = re.search(r"([^\n]*)strata: stopping after the current step", seen)
    assert before and not before[1].strip("\r"), f"stands behind '{before and before[1]}': {seen[-600:]!r}"
