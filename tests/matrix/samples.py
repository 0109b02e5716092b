"""Which combinations are run: samples that cover every pair of plugins or every pair of choices, and the whole product."""
import collections
import itertools
import random

from combinations import Combination


def every_partitioner(space):
    """Each on 2 and on 3 ranks, with several micro-batches a step, in the simplest precision and with sgd."""
    found = {}
    for ranks in ("2", "3"):
        for choice in space.axes["partitioner"]:
            combination = space.parse(f"optimizer=sgd accumulation={space.axes['accumulation'][-1]} ranks={ranks}").replaced(partitioner=choice)
            if space.refusal(combination) is None:
                found.setdefault((choice.family or choice.label, ranks), combination)
    return list(found.values())


class Sample:
    """`legal`: combinations in which every choice occurs, and every pair of choices that can work. `refused`: one combination for every
    sentence by which a pair is refused, and at least one for every rule. The same for the same seed and registry. Without
    `options_too`, a plugin with any of its options stands for the plugin in pairs. `most`: the first so many of `legal`, which hold the
    most pairs, and what is refused on the way to them."""

    PAIRS_AT_A_TIME = 24

    def __init__(self, space, seed, options_too, most=None):
        self.space, self.draw, self.options_too = space, random.Random(seed), options_too
        self.uncovered = {key for a, b in itertools.combinations(space.axes, 2)
                          for one, other in itertools.product(space.axes[a], space.axes[b]) for key in self._keys([(a, one), (b, other)])}
        self.partners = collections.defaultdict(set)  # what each choice is still to be paired with
        for one, other in (key for key in self.uncovered if len(key) == 2):
            self.partners[one].add(other)
            self.partners[other].add(one)
        self.legal, self.pairs = [], 0
        refused = {}  # by sentence
        while self.uncovered and len(self.legal) != most:
            self._cover_some(refused)
        for rule in space.rules:
            refused.update(self._refused_by(rule))
        self.refused = list(refused.values())

    def _family(self, choice):
        return choice.label if self.options_too else choice.family or choice.label

    def _keys(self, choices):
        """What is to be covered: choices, as (axis, label), and pairs of them, as two (axis, family)."""
        families = sorted((axis, self._family(choice), "") for axis, choice in choices)
        return set(itertools.combinations(families, 2)) | {((axis, self._family(choice), choice.label),) for axis, choice in choices}

    def _covered(self, combination):
        return self._keys(list(combination.choices.items()))

    def _works(self, combination):
        return self.space.applicable(combination) and self.space.refusal(combination) is None

    def _random(self, fixed=()):
        choices = {axis: self.draw.choice(choices) for axis, choices in self.space.axes.items()}
        for axis, family, label in fixed:
            choices[axis] = self.draw.choice([choice for choice in self.space.axes[axis] if self._family(choice) == family and
                                              label in ("", choice.label)])
        return Combination(choices)

    def _cover_some(self, refused):
        """Takes the combination that covers the most pairs among those found from some uncovered ones; sorts out those without any."""
        pairs = sorted(self.uncovered)
        found = []
        for pair in self.draw.sample(pairs, min(self.PAIRS_AT_A_TIME, len(pairs))):
            combination = self._climb(self._random(pair), pair) or self._climb(self._random(pair), pair)
            if combination:
                found.append(combination)
            elif not any(self._climb(self._random(pair), pair) for _ in range(20)):
                self._is_done({pair})
                candidates = filter(self.space.applicable, (self._random(pair) for _ in range(20)))
                refused.update((self.space.refusal(one), one) for one in itertools.islice(candidates, 1))
        if found:
            best = max(found, key=self._gain)
            self.legal.append(best)
            self.pairs += sum(len(key) == 2 for key in self._covered(best) & self.uncovered)
            self._is_done(self._covered(best) & self.uncovered)

    def _is_done(self, keys):
        self.uncovered -= keys
        for one, other in (key for key in keys if len(key) == 2):
            self.partners[one].discard(other)
            self.partners[other].discard(one)

    def _gain(self, combination):
        return len(self._covered(combination) & self.uncovered)

    def _climb(self, combination, fixed):
        """Changes one axis after the other for the better; None when the result cannot work."""
        fixed_axes = {part[0] for part in fixed}
        axes = [axis for axis in self.space.axes if axis not in fixed_axes]
        self.draw.shuffle(axes)
        for axis in axes:
            others = [(other, self._family(choice), "") for other, choice in combination.choices.items()]
            ranked = sorted(((self._gain_on(axis, choice, others), self.draw.random(), choice) for choice in self.space.axes[axis]),
                            key=lambda one: one[:2], reverse=True)
            options = (combination.replaced(**{axis: choice}) for _, _, choice in ranked)
            combination = next(filter(self._works, options), None) or combination.replaced(**{axis: ranked[0][2]})
        return combination if self._works(combination) else None

    def _gain_on(self, axis, choice, others):
        """The part of _gain() that the axis has in it with this choice, beside the others' families."""
        family = self._family(choice)
        return len(self.partners[axis, family, ""].intersection(others)) + (((axis, family, choice.label),) in self.uncovered)

    def _refused_by(self, rule):
        broken = ((self.space.rule_and_refusal(one), one) for one in (self._random() for _ in range(2000)) if self.space.applicable(one))
        return itertools.islice(((text, one) for (found, text), one in broken if found is rule), 1)


class Product:
    """Every combination of some axes' plugins: of FAMILIES, the kinds that cut, place and order the work, accumulation, stages and ranks;
    of PIPELINES, those of a pipeline, its chunks among them, with every partitioner and precision. The options of
    these plugins, and all other axes, take turns, the same for the same seed and registry: TURNS_OF_SUMS once for all combinations
    that are to be the same bit for bit, the others by the combination. `plain(combination)`, what others must equal, is taken where it
    is one of those to choose from."""

    FAMILIES = ("partitioner", "precision", "scheduler", "offload", "accumulation", "stages", "ranks")
    PIPELINES = ("partitioner", "precision", "scheduler", "accumulation", "stages", "chunks", "ranks")
    SUMS = ("partitioner", "precision", "accumulation", "stages", "ranks")  # change the order of sums, or may
    TURNS_OF_SUMS = ("optimizer", "model", "tensor", "embeddings", "policy")
    ATTEMPTS = 100  # to take turns so that the combination works, if it can

    def __init__(self, space, seed, plain, axes=FAMILIES):
        self.space, self.draw, self.plain, self.axes = space, random.Random(seed), plain, axes
        self.families = {axis: list(dict.fromkeys(choice.family or choice.label for choice in space.axes[axis])) for axis in axes}
        self.chosen = []
        for sums in itertools.product(*(self.families[axis] for axis in self.SUMS)):
            self._take_turns(dict(zip(self.SUMS, sums)))

    def _take_turns(self, sums):
        space = self.space
        turn = self._first_that_works(lambda: {**{axis: self._member(axis, label) for axis, label in sums.items()},
                                               **{axis: self.draw.choice(space.axes[axis]) for axis in self.TURNS_OF_SUMS}})
        others = [axis for axis in self.axes if axis not in sums]
        for families in itertools.product(*(self.families[axis] for axis in others)):
            chosen = self._first_that_works(lambda: {**{axis: self.draw.choice(choices) for axis, choices in space.axes.items()}, **turn,
                                                     **{axis: self._member(axis, label) for axis, label in zip(others, families)}})
            self.chosen.append(self._plain_if_possible(Combination({axis: chosen[axis] for axis in space.axes})))

    def _plain_if_possible(self, combination):
        plain = self.plain(combination)
        return plain if self._families_of(plain) == self._families_of(combination) else combination

    def _families_of(self, combination):
        return {axis: combination[axis].family or combination[axis].label for axis in self.axes}

    def _member(self, axis, family):
        return self.draw.choice([choice for choice in self.space.axes[axis] if (choice.family or choice.label) == family])

    def _first_that_works(self, some):
        """The first of `some()` that works, with the simplest of all axes it leaves open; when none does, one that is to be refused."""
        simplest, refused = self.space.simplest(), None
        for _ in range(self.ATTEMPTS):
            choices = some()
            combination = simplest.replaced(**choices)
            if self.space.applicable(combination):
                if self.space.refusal(combination) is None:
                    return choices
                refused = choices
        return refused
