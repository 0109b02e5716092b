"""Strata beside transformers + torch AdamW from the same Hugging Face weights and tokens.

The references: in fp32 and in bf16, each accumulating over 1, 2 and 4 micro-batches, and one in fp64, which they all round.
fp32: the losses are the first reference's, the first to 1e-6 of itself, all to 3e-5; so are the gradient's norms, to 3e-6.
bf16: over the steps, the root mean square of the losses' distance from the fp64 losses is at most 2 times that of the
farthest of the three bf16 references; so are the norms'.
Weights after the last step: Adam turns the rounding of a gradient near zero into whole steps, in whichever of them it has
the other sign. So there is no fixed bound: the distance from the fp64 weights over how far those moved,
|w - truth| / |truth - initial| over all tensors of one role (a name without its layer's number), is at most 2 times that of
the farthest of the three references of the same precision. (How far these are from each other says less: their sums are cut
where the matrix products cut them anyway, so that they round alike.) Elements whose sign in the first step is a matter of
rounding (not certain_signs: of norms and biases up to a third, of matrices up to 4 %) have two roles of their own, in which
chance evens out or ten elements of the other sign are allowed for.
"""
import concurrent.futures
import shutil

import pytest
import reference
import torch
from comparison import References, largest_error
from training_layouts import ACCUMULATIONS, BF16, FP32, SAME_SUMS, SIZES


class Training:
    """The runs of Strata, under way in another thread, and the references, which take one processor."""

    def __init__(self, runs, pool, names, size, steps):
        work, self.training = runs.work, reference.Training(steps)
        self.init, tokens_file = work / "init", work / "tokens.bin"
        reference.make_model(*SIZES[size]).save_pretrained(self.init)
        reference.make_tokens(tokens_file, SIZES[size][-1], (steps * self.training.global_batch - 1) * self.training.sequence + 1)
        self.tokens = reference.numpy.memmap(tokens_file, dtype="<u2", mode="r")
        self.initial = reference.weights_of(reference.open_folder(self.init)[0])
        self.futures = {name: pool.submit(runs.train, self.init, tokens_file, steps, ranks, settings)
                        for name, (ranks, settings) in {**FP32, **BF16}.items() if name in names}
        self.truth = reference.train(self.init, self.tokens, self.training, 4, torch.float64)
        self.by_dtype, self.same_sums = {}, {}

    def references(self, dtype):
        if dtype not in self.by_dtype:
            trained = [reference.train(self.init, self.tokens, self.training, count, dtype) for count in ACCUMULATIONS]
            self.by_dtype = {dtype: References(self.initial, self.truth, trained, self.training.learning_rate)}
        return self.by_dtype[dtype]

    def finished(self, name):
        """The run, what transformers finds wrong in its export, and the weights of that."""
        if name in self.same_sums:
            return self.same_sums[name]
        run = self.futures[name].result()
        model, wrong = reference.open_folder(run.export)
        found = run, wrong, reference.weights_of(model)
        shutil.rmtree(run.export)
        if name.split(",")[0] == SAME_SUMS:
            self.same_sums[name] = found
        return found


@pytest.fixture(scope="module")
def training(request, runs):
    names = {SAME_SUMS} | {item.callspec.params["name"] for item in request.session.items if hasattr(item, "callspec") and "name" in item.callspec.params}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield Training(runs, pool, names, request.config.getoption("--size"), request.config.getoption("--steps"))


def test_clipping_acts(training):
    print("fp64: losses", training.truth.losses, "norms", training.truth.norms)
    assert max(training.truth.norms) >= 1.05 * training.training.clip


@pytest.mark.parametrize("name", FP32)
def test_fp32(training, name):
    references = training.references(torch.float32)
    run, wrong, weights = training.finished(name)
    theirs = references.trained[0]
    assert not wrong, "transformers finds keys missing or left over in the export"
    assert largest_error(run.losses[:1], theirs.losses[:1]) <= 1e-6
    assert largest_error(run.losses, theirs.losses) <= 3e-5
    assert largest_error(run.norms, theirs.norms) <= 3e-6
    references.check_weights(weights)


@pytest.mark.parametrize("name", [name for name in FP32 if name.startswith(SAME_SUMS + ",")])
def test_same_sums_have_the_same_bits(training, name):
    (run, _, weights), (our_run, _, our_weights) = training.finished(SAME_SUMS), training.finished(name)
    assert our_run.losses == run.losses
    assert all(torch.equal(our_weights[key], weights[key]) for key in weights), "weights differ"


@pytest.mark.parametrize("name", BF16)
def test_bf16(training, name):
    references = training.references(torch.bfloat16)
    run, wrong, weights = training.finished(name)
    assert not wrong, "transformers finds keys missing or left over in the export"
    for series in ("losses", "norms"):
        references.check_series(run, series)
    references.check_weights(weights)
