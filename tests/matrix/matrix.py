#!/usr/bin/env python3
"""The matrix: combinations of all plugins on the search path, each against one process with the simplest choices.

matrix.py --strata PATH [--projects DIR] [--work DIR] [--pairs | --full] [--seed N] [--steps N] [--only 'AXIS=CHOICE ...']

Takes plugins and their options from `strata plugins show --all`, so a plugin added is a plugin tested. Without --full: a sample in
which every pair of plugins that can work occurs and every value of an option that is a choice (--pairs: every pair of these too),
every pair that cannot is refused, and every rule refuses once. With --full: partitioner x precision x scheduler x offload x accumulation x
stages x ranks, whole; plugins' options, optimizers, checkpointing, tuning and tied embeddings take turns. DIR/*-build of
--projects hold plugins built out of the tree; STRATA_PLUGIN_PATH is searched too.

What a run must equal, over STEPS steps (STEPS_OF_FULL with --full):
- the run without what changes no sum (offload, checkpointing, tuning, plugins that declare `bitwise`): every bit of losses and
  weights;
- the reference, one process with the simplest choices and the same precision and optimizer: losses to LOSS_BOUND, relative, and the
  weights of LINEAR optimizers to WEIGHT_BOUND, absolute. Other optimizers amplify the order of summation, so there the bound is
  SPREAD_FACTOR times the spread of the reference itself under SPREAD_ACCUMULATIONS, measured here, tensor by tensor, as what
  nine of ten elements differ by at most (an element whose gradient is nearly zero moves by whole steps, up or down, by luck), and
  ASTRAY_FACTOR times by the root mean square, which an element that a strategy lost moves further than luck does. A precision that is not exact rounds after every sum,
  so its losses and weights are all measured by the spread of its own reference;
- `tolerance(b)` of a plugin other than a precision: the reference's losses to b. `simulated(NAME)`: the run with plugin NAME in its
  place. A precision's own equivalence is that of its reference to the simplest precision's;
- its own dry run: peak bytes by category, tier and rank, exactly.
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import math
import operator
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from combinations import GLOBAL_BATCH, Product, Sample, Space  # noqa: E402
from engine import TINY_MODELS, Engine, Slots, built_plugins, ledger_difference, relative_difference, write_tokens  # noqa: E402

STEPS, STEPS_OF_FULL = 20, 10
LOSS_BOUND = 2e-6
WEIGHT_BOUND = 1e-6
SPREAD_FACTOR = 3.0
ASTRAY_FACTOR = 6.0  # luck reached 4.1 in 119 combinations; one element of a slice lost in every step gives 10 and more
SPREAD_ACCUMULATIONS = ["1", "4", "16"]
ROUNDING = 2.0**-22  # of the largest element: what no spread is too small to allow
LINEAR = {"sgd"}  # optimizers whose update is linear in the gradients


ROUND = 100  # combinations that are run before they are checked


def largest(a, b):
    """The largest difference of two tensors."""
    return max(map(abs, map(operator.sub, a, b)))


def typical(a, b):
    """What nine of ten elements of two tensors differ by at most."""
    differences = sorted(map(abs, map(operator.sub, a, b)))
    return differences[(len(differences) - 1) * 9 // 10]


def root_mean_square(a, b):
    """Of the difference of two tensors. One element that went astray shows in it."""
    differences = list(map(operator.sub, a, b))
    return math.sqrt(sum(map(operator.mul, differences, differences)) / len(a))


class Matrix:
    def __init__(self, options):
        projects = built_plugins(options.projects) if options.projects else []
        given = [folder for folder in os.environ.get("STRATA_PLUGIN_PATH", "").split(":") if folder]
        self.engine = Engine(options.strata, projects + given, options.work)
        self.steps = options.steps
        self.config = self.write_config()
        defaults = {line["key"]: line["value"] for line in self.engine.call("config", "show", self.config, "--format", "json")}
        self.space = Space(self.engine.plugins(), defaults)
        self.slots = Slots(options.processes)
        self.results, self.plans = {}, {}
        self.tensors = {}  # by digest: of the many runs that are the same bit for bit, the weights are kept once
        self.spreads, self.wrong_weights = {}, {}
        self.nearness = {}  # combination -> measure -> the largest of found / bound

    def write_config(self):
        tokens = os.path.join(self.engine.work, "tokens.bin")
        write_tokens(tokens)
        model, sizes = next(iter(TINY_MODELS.items()))
        return self.engine.write_config("matrix.json", {
            "device": "cpu", "model": {"plugin": model, "seq_len": 8, **sizes}, "data": {"path": tokens},
            "train": {"steps": self.steps, "global_batch": GLOBAL_BATCH, "clip": 0.5, "seed": 3},
            "learning_rate": {"base": 1e-3, "schedule": "cosine", "warmup": 4, "final_ratio": 0.1},
            "communicator": {"timeout_s": 60}})

    # What a combination is compared with.

    def reference(self, combination, accumulation="1"):
        simplest = self.space.simplest()
        chosen = {axis: combination[axis] for axis in ("precision", "optimizer", "embeddings")}
        for axis, choice in combination.choices.items():
            simulated = re.fullmatch(r"simulated\((.*)\)", self.space.equivalence(choice))
            if simulated:
                chosen[axis] = next(one for one in self.space.axes[axis] if one.plugin == simulated[1] or one.label == simulated[1])
        return self.at_accumulation(simplest.replaced(**chosen), accumulation)

    def at_accumulation(self, combination, accumulation):
        choice = combination["accumulation"]
        return combination.replaced(accumulation=type(choice)(accumulation))

    def plain(self, combination):
        """The same sums in the same order, with nothing that changes none."""
        simplest = self.space.simplest()
        same = {axis: simplest[axis] for axis in ("offload", "checkpoint", "tuning")}
        for axis in ("partitioner", "scheduler", "communicator"):
            if self.space.equivalence(combination[axis]) == "bitwise":
                same[axis] = simplest[axis]
        return combination.replaced(**same)

    def exact(self, combination):
        return self.space.equivalence(combination["precision"]) == "bitwise"

    def linear(self, combination):
        return combination["optimizer"].label.split(":")[0] in LINEAR

    def needed(self, combination):
        accumulations = ["1"] if self.exact(combination) and self.linear(combination) else SPREAD_ACCUMULATIONS
        return [combination, self.plain(combination)] + [self.reference(combination, count) for count in accumulations]

    # Running.

    def run(self, combination):
        ranks = combination.number("ranks")
        result = self.slots.run(ranks, lambda: self.engine.train(self.config, ranks, self.space.settings(combination), with_weights=True))
        if result.weights:
            result.weights = {name: self.tensors.setdefault(hashlib.sha256(tensor).digest(), tensor) for name, tensor in result.weights.items()}
        self.results[combination] = result

    def plan(self, combination):
        arguments = self.config, combination.number("ranks"), self.space.settings(combination)
        self.plans[combination] = self.slots.run(1, lambda: self.engine.plan(*arguments))

    def run_all(self, combinations, to_plan):
        """Those of most ranks first: they need the machine for themselves."""
        to_run = set(combinations) - set(self.results)
        jobs = [(self.run, one) for one in sorted(to_run, key=lambda one: (-one.number("ranks"), one.id))]
        jobs += [(self.plan, one) for one in to_plan]
        with concurrent.futures.ThreadPoolExecutor(self.slots.count) as pool:
            list(pool.map(lambda job: job[0](job[1]), jobs))

    # Checking: every method gives what is wrong, in words, as a list.

    def check_refused(self, combination):
        expected, result = self.space.refusal(combination), self.results[combination]
        said = result.error()
        if result.status != 2:
            return [f"is to be refused with exit status 2 (/{expected}/); exit status {result.status}: {said}"]
        if "\n" in said or not re.search(expected, said):
            return [f"is to be refused by one line that says /{expected}/; it said: {said}"]
        return []

    def check(self, combination):
        failed = [one for one in self.needed(combination) if self.results[one].status != 0]
        if failed:
            return [f"exit status {self.results[one].status}{'' if one == combination else ' of ' + one.id}: {self.results[one].output}"
                    for one in failed]
        wrong = self.check_bits(combination)
        wrong += self.check_losses(combination) + self.check_weights(combination if wrong else self.plain(combination))
        ledger = ledger_difference(self.results[combination].summary, self.plans[combination])
        return wrong + ([ledger] if ledger else [])

    def check_bits(self, combination):
        plain = self.plain(combination)
        mine, other = self.results[combination], self.results[plain]
        wrong = []
        step = next((step for step, pair in enumerate(zip(mine.losses, other.losses)) if pair[0] != pair[1]), None)
        if step is not None or len(mine.losses) != self.steps:
            wrong.append(f"losses are not those of [{plain.id}] bit for bit from step {step} of {len(mine.losses)} on: "
                         f"{mine.losses[step or 0]!r} and {other.losses[step or 0]!r}")
        tensors = [name for name in other.weights if mine.weights.get(name) is not other.weights[name]]
        if tensors:
            wrong.append(f"{len(tensors)} of {len(other.weights)} tensors are not those of [{plain.id}] bit for bit, {tensors[0]} among them")
        return wrong

    def spread(self, combination, measure):
        """The largest distance by `measure` among the reference's runs with another accumulation. The last of them cuts the global
        batch into single samples, as finely as the ranks and micro-batches of any combination do."""
        runs = [self.results[self.reference(combination, count)] for count in SPREAD_ACCUMULATIONS]
        return max(measure(one, other) for one, other in itertools.combinations(reversed(runs), 2))

    def weight_spread(self, combination, name, measure):
        key = self.reference(combination), name, measure
        if key not in self.spreads:
            self.spreads[key] = self.spread(combination, lambda one, other: measure(one.weights[name], other.weights[name]))
        return self.spreads[key]

    def note(self, combination, measure, found, bound):
        noted = self.nearness.setdefault(combination, {})
        noted[measure] = max(noted.get(measure, 0.0), 0.0 if not found else found / bound if bound else math.inf)

    def nearest(self, combination):
        """How much of its bounds it took, in words."""
        noted = {**self.nearness.get(self.plain(combination), {}), **self.nearness.get(combination, {})}
        return " ".join(f"{measure} {100 * part:.0f} %" for measure, part in noted.items())

    def check_losses(self, combination):
        bound = LOSS_BOUND
        measure = lambda one, other: relative_difference(one.losses, other.losses)  # noqa: E731
        if not self.exact(combination):
            bound = SPREAD_FACTOR * self.spread(combination, measure)
        for axis, choice in combination.choices.items():
            tolerance = re.fullmatch(r"tolerance\((.*)\)", self.space.equivalence(choice))
            if tolerance and axis != "precision":
                bound = max(bound, float(tolerance[1]))
        found = measure(self.results[combination], self.results[self.reference(combination)])
        self.note(combination, "losses", found, bound)
        return [] if found <= bound else [f"losses differ from the reference's by {found:.2e}, relative; the bound is {bound:.2e}"]

    def weight_bounds(self, combination, name):
        """Every measure of a tensor's difference from the reference's, with its bound."""
        if self.exact(combination) and self.linear(combination):
            return [(largest, WEIGHT_BOUND)]
        rounding = ROUNDING * max(map(abs, self.results[self.reference(combination)].weights[name]))
        return [(measure, max(factor * self.weight_spread(combination, name, measure), rounding))
                for measure, factor in ((typical, SPREAD_FACTOR), (root_mean_square, ASTRAY_FACTOR))]

    def check_weights(self, combination):
        if combination not in self.wrong_weights:
            self.wrong_weights[combination] = self.compare_weights(combination)
        return self.wrong_weights[combination]

    def compare_weights(self, combination):
        if any(self.space.equivalence(choice).startswith("tolerance") for axis, choice in combination.choices.items() if axis != "precision"):
            return []
        mine, reference = self.results[combination].weights, self.results[self.reference(combination)].weights
        wrong = []
        if set(mine) != set(reference):
            return [f"exports {sorted(set(mine) ^ set(reference))} are in one of the two only"]
        for name in reference:
            for measure, bound in self.weight_bounds(combination, name):
                found = measure(mine[name], reference[name])
                self.note(combination, measure.__name__, found, bound)
                if not found <= bound:
                    wrong.append(f"{name} differs from the reference's by {found:.2e} ({measure.__name__}); the bound is {bound:.2e}")
        return wrong

    def check_precision(self, choice):
        """A precision's reference against the simplest precision's."""
        simplest = self.space.simplest()
        mine, other = (self.results[one] for one in (simplest.replaced(precision=choice), simplest))
        if mine.status != 0 or other.status != 0:
            return [(mine if mine.status != 0 else other).output]
        declared = self.space.equivalence(choice)
        bound = 0.0 if declared == "bitwise" else float(declared[len("tolerance("):-1]) if declared.startswith("tolerance") else LOSS_BOUND
        found = relative_difference(mine.losses, other.losses)
        return [] if found <= bound else [f"declares {declared}; its losses differ from {simplest['precision']}'s by {found:.2e}, relative"]


def report(matrix, combination, problems, options):
    print(f"FAILED [{combination.id}]")
    for problem in problems:
        print(f"  {problem}")
    for one in (one for one in dict.fromkeys([combination, matrix.plain(combination)]) if one in matrix.results):
        print(f"  run:   {matrix.results[one].command}")
    print(f"  check: {sys.executable} {os.path.abspath(__file__)} --strata '{options.strata}' --projects '{options.projects or ''}' "
          f"--steps {options.steps} --only '{combination.id}'", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--projects", help="the folder with the builds of plugins out of the tree")
    parser.add_argument("--work", help="where runs write; a temporary folder when not given")
    parser.add_argument("--full", action="store_true", help="every combination of plugins, accumulation, stages and ranks")
    parser.add_argument("--pairs", action="store_true", help="every pair of choices, options of plugins among them")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="train only each N-th of the combinations")
    parser.add_argument("--steps", type=int, help="of every run")
    parser.add_argument("--only", metavar="COMBINATION", help="one combination, as a failure prints it")
    parser.add_argument("--processes", type=int, default=2, help="processes at a time")
    parser.add_argument("--list", action="store_true", help="print the combinations and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print every combination and how near to its bounds it came")
    options = parser.parse_args()
    options.steps = options.steps or (STEPS_OF_FULL if options.full else STEPS)
    options.work = options.work or tempfile.mkdtemp(prefix="strata_matrix_")

    begin = time.monotonic()
    matrix = Matrix(options)
    space = matrix.space
    if options.only:
        chosen = [space.parse(options.only)]
        kind = "one combination"
    elif options.full:
        refused_pairs = Sample(space, options.seed, False).refused
        chosen = list(dict.fromkeys(Product(space, options.seed, matrix.plain).chosen + refused_pairs))
        kind = "the whole product of partitioner, precision, scheduler, offload, accumulation, stages and ranks, and every refused pair"
    else:
        sample = Sample(space, options.seed, options.pairs)
        chosen = sample.legal + sample.refused
        kind = f"all {sample.pairs} pairs of {'choices' if options.pairs else 'plugins'} that can work, and every refused one"
    legal = sorted((one for one in chosen if space.refusal(one) is None), key=lambda one: (matrix.reference(one).id, matrix.plain(one).id))
    refused = [one for one in chosen if space.refusal(one) is not None]
    if options.every > 1:
        legal, kind = legal[::options.every], f"one in {options.every} that train of {kind}"
        chosen = legal + refused
    print(f"{len(chosen)} combinations ({len(legal)} to train, {len(refused)} to be refused): {kind}; "
          f"plugins: {', '.join(sorted(space.manifests))}", flush=True)
    if options.list:
        for one in legal + refused:
            print(f"{'' if one in legal else 'refused: '}{one.id}")
        return 0

    failures = 0
    for first in range(0, len(legal), ROUND):
        round_of = legal[first:first + ROUND]
        matrix.run_all([need for one in round_of for need in matrix.needed(one)], to_plan=round_of)
        failures += check_all(matrix, [(one, matrix.check) for one in round_of], options)
        print(f"{first + len(round_of)} of {len(legal)} trained after {time.monotonic() - begin:.0f} s, {failures} failed", flush=True)
    precisions = [] if options.only else [space.simplest().replaced(precision=choice) for choice in space.axes["precision"][1:]]
    matrix.run_all(refused + precisions + [space.simplest()] * bool(precisions), to_plan=[])
    failures += check_all(matrix, [(one, matrix.check_refused) for one in refused] +
                          [(one, lambda one: matrix.check_precision(one["precision"])) for one in precisions], options)
    count = len(chosen) + len(precisions)
    print(f"{len(matrix.results)} runs, {len(legal)} combinations trained, {len(refused)} refused, {len(precisions)} precisions "
          f"in {time.monotonic() - begin:.0f} s\n{count - failures} passed, {failures} failed")
    return 1 if failures else 0


def check_all(matrix, checks, options):
    """The number of failures."""
    failures = 0
    for combination, check in checks:
        problems = check(combination)
        if options.verbose:
            print(f"{'FAILED' if problems else 'passed'} {matrix.results[combination].seconds:5.2f} s "
                  f"{matrix.nearest(combination)} [{combination.id}]")
        if problems:
            failures += 1
            report(matrix, combination, problems, options)
    return failures


if __name__ == "__main__":
    sys.exit(main())
