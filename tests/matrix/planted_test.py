"""The matrix's bounds find defects: partitioners with a planted defect must fail them, and the same without it must pass.

- miscounts: one micro-batch of one rank, of 8 (--full: of 16 too) in a step, is lost or counted twice, in one of the run's steps: the
  first, one in the middle, or the last.
- drops: from one step on one element of a gradient is lost. In fp32, where an element is more than what rounding does.
"""
import itertools

import pytest
from combinations import Choice
from engine import Engine
from matrix import STEPS, Matrix

PARTS = {8: "ranks=2 accumulation=4", 16: "ranks=4 accumulation=4"}  # of a step's samples
MOMENTS = (0, STEPS // 2, STEPS - 1)
FEW = (("fp32", "sgd", MOMENTS[1:]), ("bf16", "adamw", MOMENTS[::2]), ("fp16", "sgd", MOMENTS[1:]), ("fp8", "adamw", MOMENTS[1:]), ("mxfp8", "sgd", MOMENTS[::2]), ("bf16:master=bf16", "sgd", MOMENTS[1:]))  # with a defect of a micro-batch in turn
WIRE = {"weights_on_wire": "int8"}  # its bound and that of a precision add up


def partitioner(name, **options):
    settings = tuple(f"partitioner.{name}.{option}={value}" for option, value in options.items())
    label = " ".join([name, *(f"{option}={value}" for option, value in options.items())])
    return Choice(label, (f"partitioner.plugin={name}", *settings), f"partitioner/{name}", name)


def planted():
    """(precision, optimizer, the parts of a step, partitioner), whether it is right, and whether it is one of the few."""
    for number, (precision, optimizer, moments) in enumerate(FEW):
        yield precision, optimizer, 8, partitioner("miscounts"), True, True
        for moment in moments:
            number += 1
            yield precision, optimizer, 8, partitioner("miscounts", factor=2 * (number % 2), step=moment), False, True
    yield "fp32", "sgd", 8, partitioner("drops", first_step=MOMENTS[-1]), False, True
    for precision, optimizer, parts in itertools.product(("fp32", "bf16", "fp16", "bf16:master=bf16"), ("sgd", "adamw"), PARTS):
        yield precision, optimizer, parts, partitioner("miscounts"), True, False
        for factor, moment in itertools.product((0, 2), MOMENTS):
            yield precision, optimizer, parts, partitioner("miscounts", factor=factor, step=moment), False, False
    for precision, optimizer, factor, moment in itertools.product(("fp8", "fp8:scaling=delayed", "mxfp8"), ("sgd", "adamw"), (0, 2), MOMENTS):
        yield precision, optimizer, 8, partitioner("miscounts", factor=factor, step=moment), False, False
    for precision, optimizer in itertools.product(("bf16", "fp8", "fp8:scaling=delayed", "mxfp8"), ("sgd", "adamw")):
        yield precision, optimizer, 8, partitioner("miscounts", **WIRE), True, precision == "mxfp8" and optimizer == "sgd"
        for factor, moment in itertools.product((0, 2), MOMENTS):
            is_few = precision == "mxfp8" and optimizer == "sgd" and moment == MOMENTS[1]
            yield precision, optimizer, 8, partitioner("miscounts", **WIRE, factor=factor, step=moment), False, is_few
    for optimizer, moment in itertools.product(("sgd", "adamw"), MOMENTS):
        yield "fp32", optimizer, 8, partitioner("drops", first_step=moment), False, False


def cases():
    """Each once."""
    found = {}
    for *case, is_right, is_few in planted():
        name = f"{case[0]} {case[1]} {PARTS[case[2]]} {case[3]}"
        found.setdefault(name, pytest.param(*case, is_right, id=name, marks=[] if is_few else pytest.mark.full))
    return found.values()


@pytest.fixture(scope="module")
def matrix(strata, plugins, build, folder):
    return Matrix(Engine(strata, [plugins, build / "matrix_defects"], folder), STEPS, 2)


@pytest.mark.parametrize("precision, optimizer, parts, choice, is_right", cases())
def test_bounds(matrix, precision, optimizer, parts, choice, is_right):
    combination = matrix.space.parse(f"precision={precision} optimizer={optimizer} {PARTS[parts]}").replaced(partitioner=choice)
    matrix.run_all(matrix.needed(combination), to_plan=[])
    ended = [matrix.results[one].output for one in matrix.needed(combination) if matrix.results[one].status != 0]
    assert not ended
    wrong = matrix.check_steps(combination) + matrix.check_weights(combination)
    assert bool(wrong) != is_right, f"of the bounds {matrix.nearest(combination)}"
