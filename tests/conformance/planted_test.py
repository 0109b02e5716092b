"""The conformance kit over plugins that are each wrong in one way, listed with the case that must catch them in the build's
planted/planted.txt; without --full, the first two of each kind and case. Those without a defect pass; without --full, one that has all."""
import collections
import concurrent.futures
import functools
import os
import re

import pytest
from kit import cases_of, kit
from place import build_folder

FAILURES = ("failed", "crashed", "timed out")
# What the plugins without a defect leave out, as they have nothing of the kind; every other case must run on them.
STATELESS = {"general.state", "general.newer_state", "general.missing_state"}
THREADLESS = {"general.threads"}
OPTIONLESS = {"general.limits"}
SKIPPED = {
    "communicator_communicator_none": STATELESS | THREADLESS,
    "data_data_none": STATELESS | THREADLESS,
    "device_device_none": STATELESS | THREADLESS | OPTIONLESS,
    "learning_rate_learning_rate_none": STATELESS | THREADLESS,
    "model_model_none": STATELESS | THREADLESS,
    "offload_offload_none": STATELESS | {"offload.three_gibibytes"},
    "optimizer_blocks_none": STATELESS | THREADLESS | {"optimizer.known_formula"},
    "optimizer_elsewhere_none": STATELESS | THREADLESS | OPTIONLESS | {"optimizer.known_formula"},
    "optimizer_optimizer_none": STATELESS | THREADLESS,
    "optimizer_sums_none": STATELESS | THREADLESS | {"optimizer.known_formula"},
    "partitioner_sharded_none": STATELESS | THREADLESS | OPTIONLESS,
    "precision_precision_none": THREADLESS,
    "scheduler_alone_nothing": STATELESS | THREADLESS | {"scheduler.large"},
    "scheduler_general_none": {"scheduler.large"},
    "scheduler_general_prints": {"scheduler.large"},
    "scheduler_scheduler_none": STATELESS | THREADLESS,
}
IN_DEFAULT_RUN = "scheduler_general_none"  # of those without a defect
TOGETHER = 3  # libraries that one process checks: each may take a minute


@functools.cache
def planted():
    """(library, the case that must fail or "none", words that it must say)."""
    lines = (build_folder() / "planted/planted.txt").read_text().splitlines()
    parts = [line.split(" ", 2) for line in lines if line.strip()]
    return [(os.path.realpath(library), case, words) for library, case, words in parts]


@functools.cache
def in_default_run():
    """Of each kind and case the first two, and one without a defect."""
    of_case = collections.defaultdict(list)
    for plugin in planted():
        of_case[name_of(plugin[0])[2], plugin[1]].append(plugin)
    first = [plugin for (_, case), plugins in of_case.items() if case != "none" for plugin in plugins[:2]]
    return {*first, *(plugin for plugin in planted() if name_of(plugin[0])[1] == IN_DEFAULT_RUN)}


@functools.cache
def all_cases():
    """The names of the cases of all kinds."""
    return {line.split(":")[0] for line in kit("--list").stdout.splitlines()}


def words_for(library, case, text):
    if case == "none":
        return ()
    notices_itself = text.startswith("it was still running")
    return ("--only", case, *(("--deadline", "3") if "hangs" in library and not notices_itself else ()))


@pytest.fixture(scope="module")
def outcomes(request):
    """A function: what the kit says of a library, by case. Two processes at a time check ahead of the tests that ask, each a
    few libraries that one case must catch."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        groups = collections.defaultdict(list)
        for item in request.session.items:
            if "planted_plugin" in getattr(item, "fixturenames", ()):
                plugin = item.callspec.params["planted_plugin"]
                groups[plugin[0] if plugin[1] == "none" else words_for(*plugin)].append(plugin)
        futures = {}
        for plugins in (group[first:first + TOGETHER] for group in groups.values() for first in range(0, len(group), TOGETHER)):
            done = pool.submit(kit, *(plugin[0] for plugin in plugins), *words_for(*plugins[0]), "--format", "json")
            futures.update(dict.fromkeys(plugins, done))
        yield lambda plugin: cases_of(futures[plugin].result())[plugin[0]]
        for future in futures.values():
            future.cancel()


def name_of(library):
    return re.fullmatch(r"libstrata_((learning_rate|[a-z]+)_.*)\.so", os.path.basename(library))


def pytest_generate_tests(metafunc):
    if "planted_plugin" not in metafunc.fixturenames:
        return
    good = metafunc.function is test_plugin_without_defect
    chosen = [pytest.param(plugin, id=name_of(plugin[0])[1], marks=[] if plugin in in_default_run() else pytest.mark.full)
              for plugin in planted() if (plugin[1] == "none") == good]
    metafunc.parametrize("planted_plugin", chosen)


def test_enough_is_planted():
    cases = [case for _, case, _ in in_default_run()]
    assert len([case for case in cases if case != "none"]) >= 60
    assert cases.count("none") == 1


def test_plugin_without_defect(outcomes, planted_plugin):
    """It passes, and so shows that what fails in the others is their defect."""
    name, cases = name_of(planted_plugin[0]), outcomes(planted_plugin)
    assert set(cases) == {case for case in all_cases() if case.split(".")[0] in ("general", name[2])}, "listed or run, and not both"
    assert not {case: outcome for case, outcome in cases.items() if outcome["status"] in FAILURES}
    assert {case for case, outcome in cases.items() if outcome["status"] == "skipped"} == SKIPPED[name[1]]


def test_defect_is_caught(outcomes, planted_plugin):
    """By its case, which says in a sentence why."""
    outcome = outcomes(planted_plugin)[planted_plugin[1]]
    assert outcome["status"] in FAILURES and len(outcome["text"]) > 10 and planted_plugin[2] in outcome["text"], outcome
