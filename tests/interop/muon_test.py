"""optimizer/muon beside torch.optim.Muon and AdamW, from the same weights and tokens, wherever the parameters are cut. torch multiplies in
bf16, which is too rough to compare with: its own function runs here in fp32. Bounds and layouts are optimizers_test.py's. q, k and v, which
lie head by head in one weight, are three matrices.
"""
import inspect

import pytest
import reference
import torch
from optimizers_test import BOUND, LAYOUTS, SPREAD_FACTOR, STEPS, VOCABULARY
from comparison import largest_error, nine_of_ten, role_of
from torch.optim import _muon

HEADS = 4
source = inspect.getsource(_muon._zeropower_via_newtonschulz)
assert source.count("grad.bfloat16()") == 1
exec(compile(source.replace("grad.bfloat16()", "grad.clone()"), "muon in fp32", "exec"), _muon.__dict__)  # pylint: disable=exec-used


def matrices_of(name, weight):
    """Views of a weight, each a matrix once it is flattened to two dimensions."""
    if "query_key_value" not in name:
        return [weight]
    return list(weight.view(HEADS, 3, -1, weight.shape[1]).unbind(1))


class MuonAndAdamW:
    """Muon for the matrices of the layers, AdamW for all else; as an optimizer to train_with."""

    def __init__(self, model, rate, decay, **options):
        hidden, others = [], []
        for name, parameter in model.named_parameters():
            (hidden if ".layers." in name and parameter.ndim == 2 else others).append((name, parameter))
        self.hidden = [(name, parameter, [torch.nn.Parameter(part.detach().flatten(0, -2).clone()) for part in matrices_of(name, parameter.data)])
                       for name, parameter in hidden]
        self.muon = torch.optim.Muon([part for _, _, parts in self.hidden for part in parts], lr=rate, weight_decay=decay, **options)
        self.adamw = torch.optim.AdamW([parameter for _, parameter in others], lr=rate, weight_decay=decay)
        self.param_groups = [{"params": [parameter for _, parameter in hidden + others]}]

    def step(self):
        for name, parameter, parts in self.hidden:
            for part, gradient in zip(parts, matrices_of(name, parameter.grad), strict=True):
                part.grad = gradient.flatten(0, -2).contiguous()
        self.muon.step()
        self.adamw.step()
        for name, parameter, parts in self.hidden:
            for part, target in zip(parts, matrices_of(name, parameter.data), strict=True):
                target.copy_(part.detach().view(target.shape))

    def zero_grad(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None


def their_training(folder, tokens, training, micro_batches=1, **options):
    model = reference.open_folder(folder)[0]
    optimizer = MuonAndAdamW(model, training.learning_rate, training.weight_decay, **options)
    return reference.train_with(optimizer, model, tokens, training, micro_batches)


class Muon:
    def __init__(self, runs):
        self.runs, self.training = runs, reference.Training(steps=STEPS, sequence=32, learning_rate=1e-2)
        self.init, self.tokens_file = runs.work / "init_muon", runs.work / "tokens_muon.bin"
        reference.make_model(64, 3, HEADS, VOCABULARY).save_pretrained(self.init)
        reference.make_tokens(self.tokens_file, VOCABULARY, STEPS * self.training.global_batch * self.training.sequence + 1)
        self.tokens = reference.numpy.memmap(self.tokens_file, dtype="<u2", mode="r")
        self.references = {}

    def reference(self, **options):
        """torch's training and the bounds of each role."""
        key = tuple(options.items())
        if key not in self.references:
            theirs = their_training(self.init, self.tokens, self.training, **options)
            others = [nine_of_ten(theirs.weights, their_training(self.init, self.tokens, self.training, count, **options).weights) for count in (2, 4)]
            largest = {}
            for name, value in theirs.weights.items():
                largest[role_of(name)] = max(largest.get(role_of(name), 0.0), value.abs().max().item())
            bounds = {role: max(BOUND * value, *(SPREAD_FACTOR * other[role] for other in others)) for role, value in largest.items()}
            self.references[key] = theirs, bounds
        return self.references[key]

    def train(self, layout, option=""):
        ranks, settings = LAYOUTS[layout]
        optimizer = f"optimizer={{plugin: muon, weight_decay: {self.training.weight_decay}{option}}}"
        rate = f"learning_rate.base={self.training.learning_rate}"
        return self.runs.train(self.init, self.tokens_file, STEPS, ranks, ("model.seq_len=32", optimizer, rate, *settings))

    def distance(self, run, **options):
        """The largest over roles, over the role's bound."""
        theirs, bounds = self.reference(**options)
        weights = reference.weights_of(reference.open_folder(run.export)[0])
        return max((value / bounds[role], role) for role, value in nine_of_ten(theirs.weights, weights).items())


@pytest.fixture(scope="module")
def muon(runs):
    return Muon(runs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_muon(muon, layout):
    run = muon.train(layout)
    assert largest_error(run.losses, muon.reference()[0].losses) <= 3e-5
    distance, role = muon.distance(run)
    print(f"at most {distance:.2g} of the bound, in {role}")
    assert distance <= 1


@pytest.mark.parametrize("option, theirs", [(", scale: moonlight", {"adjust_lr_fn": "match_rms_adamw"}), (", nesterov: false", {"nesterov": False})])
def test_options(muon, option, theirs):
    run = muon.train("1 rank ddp", option)
    assert muon.distance(run, **theirs)[0] <= 1
    assert muon.distance(run)[0] >= 10


@pytest.mark.parametrize("option", [", momentum: 0.94", ", steps: 4", ", coefficients: polar_express", ", adamw_betas: [0.9, 0.99]"])
def test_another_option_is_seen(muon, option):
    assert muon.distance(muon.train("1 rank ddp", option))[0] >= 10
