"""How far a run may be from its reference: a few roundings of its precision, for any combination.

Layouts sum the same numbers in another order, and a sum of N numbers is then another one by about sqrt(N) roundings. Optimizers have
settings here (sample_values.py) with which they pass on such a difference and do not blow it up, so bounds hold in every step.

- A parameter's gradient, by its digest (core/engine/step/gradient_digest.hpp: a sum with random signs, and a norm), relative to its norm.
  It is a sum over the step's TOKENS: 2 sqrt(TOKENS) roundings in the first step, in which all weights are equal still, and twice
  that later.
  n tensor-parallel ranks round their parts of a product before they are summed, and n - 1 partial sums: together 1 + (2 + ... + n) / n
  squares of the rounding of one product, so the root of that (core/tools/verify/gradients.hpp).
  In 8 bits a number that another order of a sum changes by a rounding of bf16 may fall to the other side: four roundings of bf16.
- What a plugin other than the precision declares, tolerance(b), is of losses and norms. Noise that has nothing to do with a gradient makes it
  longer by b where it is sqrt(2 b) of its length, so that is what a digest may be off by then; it and what roundings do have nothing to do
  with each other, so their squares add.
- The norm of the whole gradient: rounding turns a vector of so many elements without making it longer, so a few roundings, of which
  the norm's own in fp32 is one.
- A loss: the mean of TOKENS numbers, each by two roundings off. In fp32 the sum itself rounds too.
- Weights: in fp32 each, absolute. In other formats a tensor's, relative to how far it has moved: twice a gradient's,
  as steps cancel in part and their rounding does not.
  Masters in bf16 are rounded at random, by draws that are the same in both runs. Where two updates differ by d, a weight of which
  neighbours are u apart is rounded to different ones with probability d / u, and is then u off: a square of d u on average. Over the
  steps the d add up to a gradient's bound times the way, of which the distance moved is the least, so the mean square of these is the
  bound times distance times u; it has nothing to do with the rest, so squares add. Where that is less than the square of u, it still is one weight
  by u or none.

What a precision itself does to the gradient of the first step, against fp32's: every product of every layer rounds both of its operands, forward
and backward, and these roundings have nothing to do with each other. A digest is off by the noise times a number drawn from about a normal
distribution, of which the largest of some dozens is taken as 3. A format of fewer bits must be beyond the bound of one with more (matrix.py).

planted_test.py shows that a micro-batch that is lost or counted twice in one step is beyond one of them at least.
"""
import math
import operator

from sample_values import COARSEST, ROUNDING

PRODUCTS_OF_LAYER = 4  # of attention two, of the MLP two

LOSS_BOUND = 2e-6
WEIGHT_BOUND = 1e-6


class Bounds:
    """`declared`: what a plugin other than the precision says that it changes, relative."""

    def __init__(self, precision, exact, tokens, declared=0.0, tensor=1, draws=False):
        rounding = ROUNDING["fp32"] if exact else ROUNDING.get(precision, COARSEST)
        self.exact = exact
        self.draws = draws  # masters in bf16
        noise = math.sqrt(2 * declared)
        products = 1 + (tensor + 1) / 2 - 1 / tensor
        self.first_gradient, self.gradient = (math.hypot(roundings * math.sqrt(tokens * products) * rounding, noise) for roundings in (2, 4))
        self.first_norm, self.norm = (max(roundings * rounding, declared) for roundings in (4, 8))
        self.loss = max(LOSS_BOUND if exact else 2 * rounding / math.sqrt(tokens), declared)

    def weight(self, mine, other, start):
        """How far a tensor is from the reference's, which began at `start`, and the bound."""
        if self.exact:
            return max(map(abs, map(operator.sub, mine, other))), WEIGHT_BOUND
        moved = max(math.dist(other, start), 1e-30)
        unit = units(other)
        drawn = math.sqrt(max(self.gradient * unit * math.sqrt(len(other)) * moved, unit**2)) if self.draws else 0.0
        return math.dist(mine, other) / moved, math.hypot(2 * self.gradient, drawn / moved)


def gradient_of_precision(bits, layers):
    """How far a digest of the first step's gradient may be from fp32's where products multiply numbers of `bits` significant bits."""
    roundings = layers * PRODUCTS_OF_LAYER * 2 * 2  # forward and backward, two operands
    rounding = 2.0**(1 - bits) / math.sqrt(12)      # evenly spread over one unit of the last place
    return 3 * math.sqrt(roundings) * rounding


def units(weights):
    """How far neighbours in bf16 are apart at these weights: the root of the mean square."""
    return math.sqrt(sum(math.ldexp(1.0, 2 * (math.frexp(weight)[1] - 8)) for weight in weights) / max(len(weights), 1))


def apart(mine, other):
    """|a - b| / |b|; infinite where one is not finite. Two that are not are equal: neither step is applied."""
    if mine is None or other is None:
        return 0.0 if mine is other else math.inf
    return abs(mine - other) / max(abs(other), 1e-30)


def gradient_apart(mine, other):
    """The largest difference of two steps' digests, relative to the parameter's norm, and the parameter's name."""
    if set(mine) != set(other):
        return math.inf, " ".join(sorted(set(mine) ^ set(other)))
    worst = 0.0, ""
    for name, (projection, norm) in other.items():
        if None in mine[name] or norm is None:
            found = 0.0 if None in mine[name] and norm is None else math.inf
        else:
            found = max(abs(mine[name][0] - projection), abs(mine[name][1] - norm)) / max(norm, 1e-30)
        worst = max(worst, (found, name))
    return worst
