"""How near is near enough: the references that numbers are held to."""
import re

import torch

UNCERTAIN = "uncertain signs"


def largest_error(ours, truth):
    return max(abs(a / b - 1) for a, b in zip(ours, truth, strict=True))


def root_mean_square_error(ours, truth):
    return (sum((a / b - 1) ** 2 for a, b in zip(ours, truth, strict=True)) / len(truth)) ** 0.5


def role_of(name):
    """A name without its layer's number."""
    return re.sub(r"\.\d+\.", ".*.", name)


def difference(some, others, certain):
    """The norm of what weights differ by, over all tensors of one role: a name without its layer's number. Elements that are not `certain` have
    roles of their own: one for all vectors, one for all matrices."""
    squares = {}
    for name, value in some.items():
        square = (value.double() - others[name].double()).square()
        for role, elements in ((role_of(name), certain[name]), (f"{UNCERTAIN}, {value.dim()}-d", ~certain[name])):
            if elements.any():
                squares[role] = squares.get(role, 0.0) + square[elements].sum().item()
    return {role: square**0.5 for role, square in squares.items()}


def certain_signs(truth, rounded):
    """Where no rounding turns the sign of a gradient: it is at least 3 times the error of its row, in the worst of the rounded ones."""
    errors = [(one.double() - truth).square().mean(-1, keepdim=True).sqrt() for one in rounded]
    return truth.abs() >= 3 * torch.stack(errors).amax(0)


def nine_of_ten(some, others):
    """What nine of ten elements differ by less than, for each role."""
    roles = {}
    for name, value in some.items():
        roles.setdefault(role_of(name), []).append((value.double() - others[name].double()).abs().flatten())
    return {role: torch.quantile(torch.cat(parts), 0.9).item() for role, parts in roles.items()}


class References:
    """The three of one precision, and the truth that they round. Where rounding turns only a few signs, chance decides how many of them each
    training turns: beyond the farthest reference, ten elements may have the other sign in their first step."""

    def __init__(self, initial, truth, trained, learning_rate):
        self.trained, self.truth = trained, truth
        self.certain = {name: certain_signs(gradient, [one.first_gradients[name] for one in trained]) for name, gradient in truth.first_gradients.items()}
        self.movement = difference(truth.weights, initial, self.certain)
        distances = [self.distance(one.weights) for one in trained]
        chance = 10**0.5 * 2 * learning_rate
        self.farthest = {role: max(one[role] for one in distances) + (chance / moved if role.startswith(UNCERTAIN) else 0)
                         for role, moved in self.movement.items()}

    def distance(self, weights):
        """From the truth, over how far the truth has moved, by role."""
        return {role: value / self.movement[role] for role, value in difference(self.truth.weights, weights, self.certain).items()}

    def check_weights(self, weights):
        over = {role: value / self.farthest[role] for role, value in self.distance(weights).items()}
        worst = max(over, key=over.get)
        print("distance of the weights from fp64's over the references':", {role: round(value, 3) for role, value in over.items()})
        assert over[worst] <= 2, f"distance of the weights from fp64's over the references', largest in {worst}"

    def check_series(self, run, series):
        """series: losses or norms."""
        truth = getattr(self.truth, series)
        ours, *theirs = (root_mean_square_error(getattr(one, series), truth) for one in (run, *self.trained))
        assert ours / max(theirs) <= 2, f"distance of the {series} from fp64's over the references'"
