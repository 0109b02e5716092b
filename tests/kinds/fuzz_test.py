"""Each parser of foreign bytes takes a minute of libFuzzer: tests/fuzz/run.sh, with clang. The parsers are the sources of tests/readers/readers.cpp."""
import re
import subprocess

import pytest
from place import REPOSITORY, build_folder

RUN = REPOSITORY / "tests/fuzz/run.sh"
TARGETS = sorted(path.stem for path in (REPOSITORY / "tests/fuzz").glob("*.cpp"))
# Readers without a target of their own: whose parser they use.
COVERED = {"index": "json", "model config": "json", "rank file": "json", "rank record": "json", "json": "config_json", "json lines": "json_lines",
           "manifest": "manifest", "plugin file": "plugin_file", "sealed checkpoint": "checkpoint",
           "plugins of a checkpoint": "safetensors", "index of shards": "safetensors"}


def test_each_reader_has_a_target():
    listed = re.findall(r'^      \{"([^"]+)", "[^"]+", "[^"]+",', (REPOSITORY / "tests/readers/readers.cpp").read_text(), re.MULTILINE)
    assert len(listed) > 12
    assert not [reader for reader in listed if COVERED.get(reader, reader) not in TARGETS]


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_target(target):
    done = subprocess.run([RUN, "60", target], capture_output=True, text=True, timeout=600, env=None)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr + (build_folder() / f"fuzz/{target}.log").read_text(errors="replace")[-3000:]
