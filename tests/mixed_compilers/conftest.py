import shutil

import pytest

pytest.register_assert_rewrite("two_compilers")
from two_compilers import Bench  # noqa: E402


@pytest.fixture(scope="session")
def clang():
    found = next(filter(None, map(shutil.which, ("clang++", "clang++-14"))), None)
    if found is None:
        pytest.skip("no clang++ here (Debian: clang)")
    return found


@pytest.fixture(scope="module")
def bench(folder, tokens, compile_environment):
    return Bench(folder, tokens, {name: value for name, value in compile_environment.items() if name != "CXX"})
