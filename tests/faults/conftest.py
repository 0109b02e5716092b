"""Runs that are interrupted, and that nothing of them is left after each test: no process, no temporary file, no shared memory."""
import pytest

pytest.register_assert_rewrite("layouts")
from layouts import Faults  # noqa: E402
from runs import Machine  # noqa: E402
from traces import Traces, adopt_orphans  # noqa: E402


@pytest.fixture(scope="session")
def machine(strata, plugins, tmp_path_factory):
    adopt_orphans()
    return Machine(strata, plugins, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def faults(machine):
    return Faults(machine)


@pytest.fixture(autouse=True)
def nothing_is_left(machine):
    traces = Traces(machine.mark, machine.work)
    yield
    left = traces.left()
    machine.end_runs()
    assert not left
