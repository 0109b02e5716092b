"""Runs `strata plugins check` and reads its verdicts on a library."""
import json
import os

from commands import run, told
from place import build_folder, program


def library(name):
    """The path of a planted scheduler."""
    return os.path.realpath(build_folder() / f"planted/libstrata_scheduler_{name}.so")


def kit(*words):
    """The finished `strata plugins check WORDS`."""
    return run([program(), "plugins", "check", *words], timeout=300)


def cases_of(done):
    """What a --format json run says, by library and case."""
    assert done.returncode in (0, 1), told(done)
    return {plugin["file"]: {case["name"]: case for case in plugin["cases"]} for plugin in json.loads(done.stdout)["plugins"]}
