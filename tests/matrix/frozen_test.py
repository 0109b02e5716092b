"""The matrix asks the program what cannot be combined, so it cannot find a conflict that the program has lost or made up: frozen.txt keeps the
pairs of features, the features of every plugin, and how many pairs of choices each rule refuses. `STRATA_WRITE_FROZEN=1 pytest
tests/matrix/frozen_test.py` writes it anew."""
import collections
import itertools
import os
import pathlib

import pytest
from combinations import FEATURES
from engine import Engine
from matrix import Matrix

FROZEN = pathlib.Path(__file__).with_name("frozen.txt")
AXES = ("precision", "scheduler", "model", "partitioner", "optimizer")  # of plugins that have features


@pytest.fixture(scope="module")
def space(strata, plugins, folder):
    return Matrix(Engine(strata, [plugins], folder), 1, 2).space


def features_of_plugins(space):
    """A line for each plugin, and for each value of an option with which it has others."""
    for axis in AXES:
        plain = set.intersection(*(space.features_of(axis, choice) for choice in space.axes[axis]))
        of_plugin = {choice.label: space.features_of(axis, choice) for choice in space.axes[axis]}
        for choice in space.axes[axis]:
            found = of_plugin[choice.label]
            usual = of_plugin[choice.family] if choice.family else plain
            if found != usual:
                yield f"{axis}={choice}: {'; '.join(sorted(found - plain)) or 'none'}"


def refused_pairs(space):
    """How many of the pairs of choices, the others simplest, but on ranks enough for all of them, each rule refuses."""
    simplest = space.simplest().replaced(ranks=space.axes["ranks"][-1], checkpoint=space.axes["checkpoint"][1], accumulation=space.axes["accumulation"][-1])
    counts = collections.Counter()
    for one, other in itertools.combinations(space.axes, 2):
        for choices in itertools.product(space.axes[one], space.axes[other]):
            combination = simplest.replaced(**dict(zip((one, other), choices)))
            rule, _ = space.rule_and_refusal(combination)
            counts[name_of(rule)] += 1
    return counts


def name_of(rule):
    return "none" if rule is None else " | ".join(rule.features) if hasattr(rule, "features") else rule.__name__.strip("_")


def test_conflicts_are_as_frozen(space):
    pairs = [f"{row['first']} | {row['second']}" for row in space.program.conflicts()]
    counts = [f"{name}: {count}" for name, count in sorted(refused_pairs(space).items())]
    text = "\n".join(["# conflicts", *pairs, "", "# features of plugins", *features_of_plugins(space), "", "# pairs of choices, by the rule that refuses them",
                      *counts, ""])
    if os.environ.get("STRATA_WRITE_FROZEN"):
        FROZEN.write_text(text)
    assert text == FROZEN.read_text()


def test_the_matrix_has_every_feature(space):
    assert {row[place] for row in space.program.conflicts() for place in ("first", "second")} == set(FEATURES)
