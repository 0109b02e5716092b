"""Needs the Python that `cmake/bootstrap.sh --for interop` makes, with torch and transformers: under another all of it is skipped."""
import pathlib

import pytest

try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ImportError:
    collect_ignore_glob = ["*_test.py"]


def pytest_addoption(parser):
    parser.addoption("--size", choices=["small", "pythia-14m", "pythia-70m"], default="pythia-14m", help="of the model that is trained beside transformers")
    parser.addoption("--steps", type=int, default=6, help="that it is trained for")


@pytest.fixture(scope="module")
def runs(strata, plugins, folder):
    from strata_run import Strata
    return Strata(strata, plugins, pathlib.Path(__file__).parent / "pythia.yaml", folder)
