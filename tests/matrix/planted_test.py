#!/usr/bin/env python3
"""What the matrix's bounds see: partitioners with a planted defect must fail them, and the same without it must pass.

planted.py --strata PATH --plugins FOLDER --planted FOLDER [--work DIR] [--full]

- miscounts: one micro-batch of one rank, of 8 (--full: of 16 too) in a step, is lost or counted twice, in one of the run's steps: the
  first, one in the middle, or the last.
- drops: from one step on one element of a gradient is lost. In fp32, where an element is more than what rounding does.
"""
import argparse
import itertools
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from combinations import Choice  # noqa: E402
from matrix import STEPS, Matrix  # noqa: E402

PARTS = {8: "ranks=2 accumulation=4", 16: "ranks=4 accumulation=4"}  # of a step's samples
MOMENTS = (0, STEPS // 2, STEPS - 1)
FEW = (("fp32", "sgd", MOMENTS[1:]), ("bf16", "adamw", MOMENTS[::2]), ("fp16", "sgd", MOMENTS[1:]))  # with a defect of a micro-batch in turn


def partitioner(name, **options):
    settings = tuple(f"partitioner.{name}.{option}={value}" for option, value in options.items())
    label = " ".join([name, *(f"{option}={value}" for option, value in options.items())])
    return Choice(label, (f"partitioner.plugin={name}", *settings), f"partitioner/{name}", name)


def planted(full):
    """(precision, optimizer, the parts of a step, partitioner), and whether it is right."""
    for number, (precision, optimizer, moments) in enumerate(FEW):
        yield precision, optimizer, 8, partitioner("miscounts"), True
        for moment in moments:
            number += 1
            yield precision, optimizer, 8, partitioner("miscounts", factor=2 * (number % 2), step=moment), False
    yield "fp32", "sgd", 8, partitioner("drops", first_step=MOMENTS[-1]), False
    if full:
        for precision, optimizer, parts in itertools.product(("fp32", "bf16", "fp16"), ("sgd", "adamw"), PARTS):
            yield precision, optimizer, parts, partitioner("miscounts"), True
            for factor, moment in itertools.product((0, 2), MOMENTS):
                yield precision, optimizer, parts, partitioner("miscounts", factor=factor, step=moment), False
        for optimizer, moment in itertools.product(("sgd", "adamw"), MOMENTS):
            yield "fp32", optimizer, 8, partitioner("drops", first_step=moment), False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--plugins", required=True, help="the folder of its plugins")
    parser.add_argument("--planted", required=True, help="the folder of the plugins with defects")
    parser.add_argument("--work", help="where runs write; a temporary folder when not given")
    parser.add_argument("--full", action="store_true", help="both defects of a micro-batch, one of 16 too")
    options = parser.parse_args()
    os.environ["STRATA_PLUGIN_PATH"] = f"{options.plugins}:{options.planted}"
    options.work, options.projects = options.work or tempfile.mkdtemp(prefix="strata_matrix_planted_"), None
    options.steps, options.processes = STEPS, 2
    matrix = Matrix(options)
    cases = {}
    for precision, optimizer, parts, choice, is_right in planted(options.full):
        combination = matrix.space.parse(f"precision={precision} optimizer={optimizer} {PARTS[parts]}").replaced(partitioner=choice)
        cases[combination] = is_right
    matrix.run_all([need for combination in cases for need in matrix.needed(combination)], to_plan=[])
    failures = 0
    for combination, is_right in cases.items():
        ended = [matrix.results[one].output for one in matrix.needed(combination) if matrix.results[one].status != 0]
        wrong = ended or matrix.check_steps(combination) + matrix.check_weights(combination)
        failed = bool(ended) or bool(wrong) == is_right
        failures += failed
        print(f"{'FAILED' if failed else 'passed'}: [{combination.id}] is {'right' if is_right else 'wrong'}: of the bounds "
              f"{matrix.nearest(combination)}", flush=True)
        for problem in wrong if failed else []:
            print(f"  {problem}")
    print(f"{len(cases) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
