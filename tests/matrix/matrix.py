#!/usr/bin/env python3
"""The matrix: combinations of all plugins on the search path, each against one process with the simplest choices.

matrix.py --strata PATH [--projects DIR] [--work DIR] [--pairs | --full] [--seed N] [--steps N] [--only 'AXIS=CHOICE ...']

Takes plugins and their options from `strata plugins show --all`, so a plugin added is a plugin tested. Without --full: a sample in
which every pair of plugins that can work occurs and every value of an option that is a choice (--pairs: every pair of these too),
every pair that cannot is refused, and every rule refuses once. With --full: partitioner x precision x scheduler x offload x accumulation x
stages x ranks, whole; plugins' options, optimizers, checkpointing, tuning and tied embeddings take turns. DIR/*-build of
--projects hold plugins built out of the tree; STRATA_PLUGIN_PATH is searched too.

With either: every partitioner on 2 and 3 ranks in fp32 with sgd.

What a run must equal, over STEPS steps (STEPS_OF_FULL with --full):
- the run without what changes no sum (offload, checkpointing, tuning, plugins that declare `bitwise`): every bit of losses and
  weights;
- the reference, one process with the simplest choices and the same precision and optimizer, to the bounds of bounds.py: in every
  step every parameter's gradient, the gradient's norm and the loss; at the end every weight. Of an optimizer that combinations.py
  has no settings for it is not known how it blows up rounding: there gradients and norms of the first step, and the losses;
- `tolerance(b)` of a plugin other than a precision: the reference's losses, norms and gradients to b. `simulated(NAME)`: the run with
  plugin NAME in its place. A precision's own equivalence is that of its reference to the simplest precision's;
- its own dry run: peak bytes by category, tier and rank, exactly.
"""
import argparse
import concurrent.futures
import hashlib
import math
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from bounds import LOSS_BOUND, Bounds, apart, gradient_apart  # noqa: E402
from combinations import GLOBAL_BATCH, Product, Sample, Space, every_partitioner  # noqa: E402
from engine import TINY_MODELS, Engine, Slots, built_plugins, ledger_difference, relative_difference, write_tokens  # noqa: E402

STEPS, STEPS_OF_FULL = 20, 10
SEQUENCE = 8
ROUND = 100  # combinations that are run before they are checked


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
        self.starts, self.wrong_weights = {}, {}
        self.nearness = {}  # combination -> measure -> the largest of found / bound

    def write_config(self):
        tokens = os.path.join(self.engine.work, "tokens.bin")
        write_tokens(tokens)
        model, sizes = next(iter(TINY_MODELS.items()))
        return self.engine.write_config("matrix.json", {
            "device": "cpu", "model": {"plugin": model, "seq_len": SEQUENCE, **sizes}, "data": {"path": tokens},
            "train": {"steps": self.steps, "global_batch": GLOBAL_BATCH, "clip": 0.5, "seed": 3},
            "learning_rate": {"base": 1e-3, "plugin": "cosine", "warmup": 4, "final_ratio": 0.1},
            "communicator": {"timeout_s": 60}})

    # What a combination is compared with.

    def reference(self, combination):
        simplest = self.space.simplest()
        chosen = {axis: combination[axis] for axis in ("precision", "optimizer", "embeddings")}
        for axis, choice in combination.choices.items():
            simulated = re.fullmatch(r"simulated\((.*)\)", self.space.equivalence(choice))
            if simulated:
                chosen[axis] = next(one for one in self.space.axes[axis] if one.plugin == simulated[1] or one.label == simulated[1])
        return simplest.replaced(**chosen)

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

    def needed(self, combination):
        return [combination, self.plain(combination), self.reference(combination)]

    # Running.

    def run(self, combination):
        ranks = combination.number("ranks")
        result = self.slots.run(ranks, lambda: self.engine.train(self.config, ranks, self.space.settings(combination), with_weights=True,
                                                                 with_gradients=True))
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
        wrong += self.check_steps(combination) + self.check_weights(combination if wrong else self.plain(combination))
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

    def note(self, combination, measure, found, bound):
        noted = self.nearness.setdefault(combination, {})
        noted[measure] = max(noted.get(measure, 0.0), 0.0 if not found else found / bound if bound else math.inf)

    def nearest(self, combination):
        """How much of its bounds it took, in words."""
        noted = {**self.nearness.get(self.plain(combination), {}), **self.nearness.get(combination, {})}
        return " ".join(f"{measure} {100 * part:.0f} %" for measure, part in noted.items())

    def bounds(self, combination):
        declared = [re.fullmatch(r"tolerance\((.*)\)", self.space.equivalence(choice)) for axis, choice in combination.choices.items()
                    if axis != "precision"]
        precision = combination["precision"]
        return Bounds(precision.family or precision.label, self.exact(combination), GLOBAL_BATCH * SEQUENCE,
                      max((float(one[1]) for one in declared if one), default=0.0))

    def check_steps(self, combination):
        """Losses, gradients and their norms, step by step; of each the first that is too far away."""
        mine, reference = self.results[combination], self.results[self.reference(combination)]
        bounds, wrong = self.bounds(combination), {}
        if len(mine.losses) != len(reference.losses) or len(mine.steps) != len(reference.steps):
            return [f"it made {len(mine.losses)} steps and recorded {len(mine.steps)}, the reference {len(reference.losses)} and {len(reference.steps)}"]
        for step, (loss, other_loss, one, other) in enumerate(zip(mine.losses, reference.losses, mine.steps, reference.steps)):
            measured = [("losses", apart(loss, other_loss), bounds.loss, "the loss")]
            if step == 0 or self.space.is_steady(combination):
                gradient, name = gradient_apart(one["gradients"], other["gradients"])
                measured += [("norms", apart(one["grad_norm"], other["grad_norm"]), bounds.norm if step else bounds.first_norm, "the gradient's norm"),
                             ("gradients", gradient, bounds.gradient if step else bounds.first_gradient, f"the gradient of {name}")]
            for measure, found, bound, what in measured:
                self.note(combination, measure, found, bound)
                if not found <= bound:
                    wrong.setdefault(measure, f"{what} differs from the reference's at step {step} by {found:.2e}, relative; the bound is {bound:.2e}")
        return list(wrong.values())

    def start(self, combination):
        """The weights that every run of this model starts with."""
        simplest = self.space.simplest().replaced(embeddings=combination["embeddings"])
        if simplest not in self.starts:
            settings = [*self.space.settings(simplest), "learning_rate.base=0", "train.steps=1"]
            self.starts[simplest] = self.engine.train(self.config, 1, settings, with_weights=True).weights
        return self.starts[simplest]

    def check_weights(self, combination):
        if combination not in self.wrong_weights:
            self.wrong_weights[combination] = self.compare_weights(combination)
        return self.wrong_weights[combination]

    def compare_weights(self, combination):
        others = [choice for axis, choice in combination.choices.items() if axis != "precision"]
        if not self.space.is_steady(combination) or any(self.space.equivalence(choice).startswith("tolerance") for choice in others):
            return []
        mine, reference = self.results[combination].weights, self.results[self.reference(combination)].weights
        start, bounds, wrong = self.start(combination), self.bounds(combination), []
        if set(mine) != set(reference):
            return [f"exports {sorted(set(mine) ^ set(reference))} are in one of the two only"]
        for name in reference:
            found, bound = bounds.weight(mine[name], reference[name], start[name])
            self.note(combination, "weights", found, bound)
            if not found <= bound:
                wrong.append(f"{name} differs from the reference's by {found:.2e}; the bound is {bound:.2e}")
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
    if not options.only:
        legal = list(dict.fromkeys(every_partitioner(space) + legal))
        kind = f"every partitioner on 2 and 3 ranks, and {kind}"
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
