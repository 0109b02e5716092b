"""Runs combinations of plugins and reports wrong ones.

What a run must equal, over STEPS steps:
- the run without what changes no sum (offload, checkpointing, tuning, plugins that declare `bitwise`): every bit of losses and
  weights;
- the reference, one process with the simplest choices and the same precision, optimizer and step policy (with the policy local, as many processes as
  there are groups of ranks), to the bounds of bounds.py: in every
  step every parameter's gradient, the gradient's norm and the loss; at the end every weight. Of an optimizer that sample_values.py
  has no settings for it is not known how it blows up rounding: there gradients and norms of the first step, and the losses;
- `tolerance(b)` of a plugin other than a precision: the reference's losses and norms to b, and gradients to sqrt(2 b) (bounds.py). `simulated(NAME)`: the run with
  plugin NAME in its place. A precision's own equivalence is that of its reference to the simplest precision's,
  whose first gradients it may be away from as far as its bits round (bounds.py);
- its own dry run: peak bytes by category, tier and rank, exactly.
"""
import concurrent.futures
import hashlib
import math
import os
import re

from bounds import LOSS_BOUND, Bounds, apart, gradient_apart, gradient_of_precision
from combinations import GLOBAL_BATCH, Space
from engine import TINY_MODELS, Slots, ledger_difference, relative_difference, set_arguments, write_tokens
from program import Program
from sample_values import SIGNIFICANT_BITS
from trainers import Trainers

STEPS = 12
SEQUENCE = 8
LAYERS_OF_PIPELINES = 10  # and embedding and head: enough for 4 stages of 3 chunks


class Matrix:
    """`trainer`: the program whose threads are the ranks; None: every run is a `strata train`. `pipelines`: the model is deeper, and
    there are enough micro-batches for every schedule."""

    def __init__(self, engine, steps, processes, trainer=None, pipelines=False):
        self.engine, self.steps = engine, steps
        self.model, sizes = next(iter(TINY_MODELS.items()))
        self.sizes = {**sizes, "layers": LAYERS_OF_PIPELINES if pipelines else sizes["layers"]}
        models = [(name, {**TINY_MODELS[name], "layers": self.sizes["layers"]}) for name in TINY_MODELS]
        self.config = self.write_config()
        defaults = {line["key"]: line["value"] for line in self.engine.call("config", "show", self.config, "--format", "json")}
        self.space = Space(self.engine.plugins(), defaults, self.sizes["layers"] + 2, models, Program(engine, self.config), ("8",) if pipelines else ("1", "4"), communicators=trainer is None)
        self.slots = Slots(processes)
        self.trainers = Trainers(trainer, engine, processes) if trainer else None
        self.results, self.plans = {}, {}
        self.tensors = {}  # by digest: of the many runs that are the same bit for bit, the weights are kept once
        self.starts, self.wrong_weights = {}, {}
        self.nearness = {}  # combination -> measure -> the largest of found / bound

    def write_config(self):
        tokens = os.path.join(self.engine.work, "tokens.bin")
        write_tokens(tokens)
        return self.engine.write_config("matrix.json", {
            "device": "cpu", "model": {"plugin": self.model, "seq_len": SEQUENCE, **self.sizes}, "data": {"path": tokens},
            "train": {"steps": self.steps, "global_batch": GLOBAL_BATCH, "clip": 0.5, "seed": 3},
            "learning_rate": {"base": 1e-3, "plugin": "cosine", "warmup": 4, "final_ratio": 0.1},
            "communicator": {"timeout_s": 60}})

    # What a combination is compared with.

    def reference(self, combination):
        simplest = self.space.simplest()
        chosen = {axis: combination[axis] for axis in ("precision", "optimizer", "model", "embeddings", "policy")}
        for axis, choice in combination.choices.items():
            simulated = re.fullmatch(r"simulated\((.*)\)", self.space.equivalence(choice))
            if simulated and not self.space.updates_within_the_step(combination):
                chosen[axis] = next(one for one in self.space.axes[axis] if one.plugin == simulated[1] or one.label == simulated[1])
        if self.space.updates_within_the_step(combination):  # what it computes depends on these; pipedream_test.cpp compares it with a simulation
            chosen |= {axis: combination[axis] for axis in ("scheduler", "stages", "accumulation")}
            chosen["ranks"] = next(one for one in self.space.axes["ranks"] if one.label == combination["stages"].label)
        if combination["policy"].label == "local":  # each group trains on its part of every micro-batch; local_test.cpp compares this reference with a simulation
            chosen |= {"accumulation": combination["accumulation"]}
            chosen["partitioner"] = self.space.of_whole_replicas()
            groups = combination.data_parallel // self.space.shard_size(combination)
            chosen["ranks"] = next(one for one in self.space.axes["ranks"] if one.label == str(groups))
        return simplest.replaced(**chosen)

    def plain(self, combination):
        """The same sums in the same order, with nothing that changes none."""
        simplest = self.space.simplest()
        same = {axis: simplest[axis] for axis in ("offload", "checkpoint", "tuning")}
        for axis in ("partitioner", "scheduler", "communicator"):
            if self.space.equivalence(combination[axis]) == "bitwise":
                same[axis] = simplest[axis]
        if self.space.equivalence(combination["optimizer"]) != "bitwise":  # its sums follow where parameters are cut
            for axis in ("tuning", "partitioner", "scheduler"):
                same.pop(axis, None)
        if self.space.sums_a_tie_apart(combination):
            same.pop("scheduler", None)
        if self.space.compresses(combination):  # tunings cut pieces; a schedule that splits the backward keeps weights apart
            for axis in ("tuning", "scheduler"):
                same.pop(axis, None)
        return combination.replaced(**same)

    def exact(self, combination):
        return self.space.equivalence(combination["precision"]) == "bitwise"

    def needed(self, combination):
        return [combination, self.plain(combination), self.reference(combination)]

    # Running.

    def run(self, combination):
        ranks, settings = combination.number("ranks"), self.space.settings(combination)
        if self.trainers:
            result, self.plans[combination] = self.trainers.train(self.config, ranks, settings)
        else:
            result = self.slots.run(ranks, lambda: self.engine.train(self.config, ranks, settings, with_weights=True, with_gradients=True))
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
        jobs += [(self.plan, one) for one in to_plan if not self.trainers]
        with concurrent.futures.ThreadPoolExecutor(self.slots.count) as pool:
            list(pool.map(lambda job: job[0](job[1]), jobs))

    # Checking: every method gives what is wrong, in words, as a list.

    def check_refused(self, combination):
        expected, result = self.space.refusal(combination), self.results[combination]
        said = "\n".join(line for line in result.error().split("\n") if not line.startswith("info: ")).strip()
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
                      max((float(one[1]) for one in declared if one), default=0.0), combination.tensor,
                      draws=precision.label.endswith("master=bf16"))

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
        simplest = self.space.simplest().replaced(model=combination["model"], embeddings=combination["embeddings"])
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

    def check_verified(self, combination):
        """What `strata verify` says of it, where it is to say that all is equal."""
        done = self.engine.run("verify", self.config, "--quiet", "--nproc", combination.number("ranks"),
                               *set_arguments(self.space.settings(combination)), timeout=300)
        said = done.stdout + done.stderr
        if combination["policy"].label == "local":
            return [] if done.returncode == 2 and "step_policy=plain" in said else [said]
        return [] if done.returncode == 0 and re.search("^equal: ", said, re.M) else [said]

    def check_precision(self, choice):
        """A precision's reference against the simplest precision's."""
        simplest = self.space.simplest()
        mine, other = (self.results[one] for one in (simplest.replaced(precision=choice), simplest))
        if mine.status != 0 or other.status != 0:
            return [(mine if mine.status != 0 else other).output]
        declared = self.space.equivalence(choice)
        bound = 0.0 if declared == "bitwise" else float(declared[len("tolerance("):-1]) if declared.startswith("tolerance") else LOSS_BOUND
        found = relative_difference(mine.losses, other.losses)
        wrong = [] if found <= bound else [f"declares {declared}; its losses differ from {simplest['precision']}'s by {found:.2e}, relative"]
        bits = SIGNIFICANT_BITS.get(choice.family or choice.label)
        if bits is None:
            return wrong
        found, name = gradient_apart(mine.steps[0]["gradients"], other.steps[0]["gradients"])
        bound = gradient_of_precision(bits, self.sizes["layers"])
        if not found <= bound:
            wrong.append(f"the first gradient of {name} differs from {simplest['precision']}'s by {found:.2e}, relative; the bound of {bits} bits is {bound:.2e}")
        finer = [more for more in SIGNIFICANT_BITS.values() if more > bits and found <= gradient_of_precision(more, self.sizes["layers"])]
        if finer:
            wrong.append(f"its first gradients differ from {simplest['precision']}'s by {found:.2e} only: within the bound of {finer[0]} bits, which therefore is too wide")
        return wrong
