"""Every key of the engine is read by the engine, so that a C++ program has it as `strata train` does. A key that a command alone reads is refused
in a program: core/engine/resolve/unused_settings.cpp."""
import re

import pytest

from place import REPOSITORY as ROOT

ROW = re.compile(r'KEY\(\w+, (\w+), "([\w.]+)"')
ENGINE = "\n".join(path.read_text() for path in sorted((ROOT / "core/engine").rglob("*.[ch]pp")) if path.parent.name != "config")
RUN_CONFIG = (ROOT / "core/engine/config/run_config.hpp").read_text()


def rows(text):
    return ROW.findall(text)


def is_read(member, path, code):
    """Whether code has `train.clip`, or `config.memory_budget` of a key without a section."""
    section = path.split(".")[0]
    return re.search(rf"\b(?:{section}\w*\.|config(?:_|\(\))?\.|run\.|config::){member}\b", code) is not None


@pytest.mark.parametrize("member, path", rows(RUN_CONFIG))
def test_a_key_is_read_by_the_engine(member, path):
    assert is_read(member, path, ENGINE), f"{path} is read by no room of the engine but config"


def test_a_key_of_a_command_is_seen():
    assert rows('KEY(text, metrics_csv, "metrics.csv", "", ...') == [("metrics_csv", "metrics.csv")]
    assert is_read("clip", "train.clip", "config_.train.clip") and is_read("metrics_csv", "metrics.csv", "config.metrics_csv.empty()")
    assert not is_read("clip", "train.clip", "step.clip;") and not is_read("metrics_csv", "metrics.csv", "settings.metrics_csv")
