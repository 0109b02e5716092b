"""Strata beside transformers + torch AdamW from the same Hugging Face weights and tokens: one line a check, then their
number. Exit status 1 if any failed.

The references: in fp32 and in bf16, each accumulating over 1, 2 and 4 micro-batches, and one in fp64, which they all round.
fp32: the losses are the first reference's, the first to 1e-6 of itself, all to 3e-5; so are the gradient's norms, to 3e-6.
bf16: over the steps, the root mean square of the losses' distance from the fp64 losses is at most 2 times that of the
farthest of the three bf16 references; so are the norms'.
Weights after the last step: Adam turns the rounding of a gradient near zero into whole steps, so no fixed bound means
anything. Their distance from the fp64 weights over how far those moved, |w - truth| / |truth - initial| over all tensors
of one role (a name without its layer's number), is at most 3 times that of the farthest of the three references of the same
precision. (How far these are from each other says less: their sums are cut where the matrix products cut them anyway, so
that they round alike.)
"""
import argparse
import concurrent.futures
import json
import pathlib
import shutil
import tempfile
import time

try:
    import reference
    import torch
except ImportError as error:
    raise SystemExit(f"FAILED: {error}. Run cmake/bootstrap.sh --for interop, whose Python runs this test")
from comparison import Checks, References, largest_error
from strata_run import Failed, Strata

SIZES = {"pythia-14m": (128, 6, 4, 50304), "pythia-70m": (512, 6, 8, 50304)}  # hidden size, layers, heads, vocabulary
ACCUMULATIONS = (1, 2, 4)
TWO_RANKS = ("partitioner.plugin=zero3", "train.micro_batch=3")
PIPELINE = ("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=3")

# name -> ranks, settings
FP32 = {
    "1 rank ddp": (1, ("partitioner.plugin=ddp", "train.micro_batch=12")),
    "2 ranks ddp": (2, ("partitioner.plugin=ddp", "train.micro_batch=3")),
    "2 ranks zero3": (2, TWO_RANKS),
    "3 ranks zero3": (3, ("partitioner.plugin=zero3", "train.micro_batch=2")),
    "2 stages 1f1b": (2, PIPELINE),
    "2 x 2 zero3 + 1f1b": (4, ("partitioner.plugin=zero3", *PIPELINE)),
    "2 ranks zero3, optimizer on cpu": (2, (*TWO_RANKS, "offload.optimizer.plugin=cpu")),
    "2 ranks zero3, checkpointing": (2, (*TWO_RANKS, "activations.checkpoint=all")),
}
SAME_SUMS = "2 ranks zero3"  # the runs named so with something after a comma add the same numbers in the same order
BF16 = {
    "bf16, 1 rank ddp": (1, ("partitioner.plugin=ddp", "precision.plugin=bf16", "train.micro_batch=12")),
    "bf16, 2 ranks zero3": (2, ("precision.plugin=bf16", *TWO_RANKS)),
}


class Runs:
    """Every configuration's run, under way in another thread."""

    def __init__(self, checks, pool, strata, configurations, init, tokens, steps):
        self.checks = checks
        self.futures = {name: pool.submit(strata.train, init, tokens, steps, ranks, settings)
                        for name, (ranks, settings) in configurations.items()}

    def finished(self):
        """Name, run and the weights of its export. A run that failed is said and left out."""
        for name, future in self.futures.items():
            try:
                run = future.result()
            except Failed as error:
                self.checks.say(False, name, str(error))
                continue
            model, wrong = reference.open_folder(run.export)
            found = json.dumps(wrong) if wrong else "nothing missing or left over"
            self.checks.say(not wrong, f"{name}: transformers opens the export", found)
            yield name, run, reference.weights_of(model)
            shutil.rmtree(run.export)


def check_fp32(checks, references, runs):
    theirs = references.trained[0]
    same_sums = {}
    for name, run, weights in runs.finished():
        checks.at_most(f"{name}: first loss", largest_error(run.losses[:1], theirs.losses[:1]), 1e-6)
        checks.at_most(f"{name}: all losses", largest_error(run.losses, theirs.losses), 3e-5)
        checks.at_most(f"{name}: gradient norms", largest_error(run.norms, theirs.norms), 3e-6)
        references.check_weights(checks, name, weights)
        if name.split(",")[0] == SAME_SUMS:
            same_sums[name] = run.losses, weights
    for name in list(same_sums)[1:]:
        (losses, weights), (our_losses, our_weights) = same_sums[SAME_SUMS], same_sums[name]
        equal = our_losses == losses and all(torch.equal(our_weights[key], weights[key]) for key in weights)
        found = "bitwise equal" if equal else "not bitwise equal"
        checks.say(equal, f"{name}: losses and weights beside {SAME_SUMS}", found)


def check_bf16(checks, references, runs):
    for name, run, weights in runs.finished():
        for series in ("losses", "norms"):
            references.check_series(checks, name, run, series)
        references.check_weights(checks, name, weights)


def check_training(checks, strata, work, size, steps):
    training = reference.Training(steps)
    init, tokens_file = work / "init", work / "tokens.bin"
    reference.make_model(*SIZES[size]).save_pretrained(init)
    reference.make_tokens(tokens_file, SIZES[size][-1], (steps * training.global_batch - 1) * training.sequence + 1)
    tokens = reference.numpy.memmap(tokens_file, dtype="<u2", mode="r")
    initial = reference.weights_of(reference.open_folder(init)[0])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # beside the references, which take one processor
        fp32_runs = Runs(checks, pool, strata, FP32, init, tokens_file, steps)
        bf16_runs = Runs(checks, pool, strata, BF16, init, tokens_file, steps)
        truth = reference.train(init, tokens, training, 4, torch.float64)
        print(f"{size} in fp64: losses", *(f"{loss:.6f}" for loss in truth.losses), flush=True)
        print("norms", *(f"{norm:.6f}" for norm in truth.norms), flush=True)
        checks.at_least("clipping acts: the largest norm", max(truth.norms), 1.05 * training.clip)
        for dtype, check, runs in ((torch.float32, check_fp32, fp32_runs), (torch.bfloat16, check_bf16, bf16_runs)):
            trained = [reference.train(init, tokens, training, count, dtype) for count in ACCUMULATIONS]
            check(checks, References(initial, truth, trained), runs)


# name -> arguments of the model, whether config.json has the published keys, weights' type, largest shard
IMPORTS = {
    "rope_parameters, one file": ({}, False, torch.float32, "1GB"),
    "rotary_pct, one file": ({}, True, torch.float32, "1GB"),
    "rope_parameters, shards": ({}, False, torch.float32, "100KB"),
    "rotary_pct, shards, fp16 and old buffers": ({}, True, torch.float16, "100KB"),
    "residual not parallel": ({"use_parallel_residual": False, "layer_norm_eps": 1e-3}, True, torch.float32, "1GB"),
}


def make_import(folder, arguments, published, dtype, shard):
    model = reference.make_model(64, 2, 4, 501, rotary_fraction=0.5, rotary_base=500, **arguments).to(dtype)
    state = model.state_dict()
    if dtype == torch.float16:  # as older versions of transformers saved them, Pythia's own folders among them
        for layer in range(2):
            state[f"gpt_neox.layers.{layer}.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
            state[f"gpt_neox.layers.{layer}.attention.masked_bias"] = torch.tensor(-1e9)
            state[f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"] = torch.ones(4)
    model.save_pretrained(folder, state_dict=state, max_shard_size=shard)
    if published:
        reference.use_published_keys(folder)


def check_imports(checks, strata, work):
    training = reference.Training(steps=2, sequence=32)
    tokens_file = work / "import.bin"
    reference.make_tokens(tokens_file, 501, 5000)
    tokens = reference.numpy.memmap(tokens_file, dtype="<u2", mode="r")

    def train(folder, steps, configuration="3 ranks zero3"):
        ranks, settings = FP32[configuration]
        return strata.train(folder, tokens_file, steps, ranks, ("model.seq_len=32", *settings))

    for name, arguments in IMPORTS.items():
        folder = work / name
        make_import(folder, *arguments)
        shards = len(list(folder.glob("*.safetensors")))
        checks.say((shards > 1) == ("shards" in name), f"import of {name}: files of weights in its folder", str(shards))
        losses = train(folder, training.steps).losses
        theirs = reference.train(folder, tokens, training).losses
        checks.at_most(f"import of {name}: first loss", largest_error(losses[:1], theirs[:1]), 1e-6)
        checks.at_most(f"import of {name}: all losses", largest_error(losses, theirs), 3e-5)

    path = folder / "config.json"
    path.write_text(path.read_text().replace('"rotary_pct": 0.5', '"rotary_pct": 0.25'))
    moved = largest_error(train(folder, 1).losses, theirs[:1])
    checks.at_least("import: another rotary_pct moves the first loss", moved, 1e-4)

    export = train(folder, training.steps, "2 x 2 zero3 + 1f1b").export
    losses, theirs = train(export, 1).losses, [reference.first_loss(export, tokens, training)]
    checks.at_most("import of an export: first loss", largest_error(losses, theirs), 1e-6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the program")
    parser.add_argument("--size", choices=SIZES, default="pythia-14m")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--work", help="where to make a temporary folder, 2 GB; the system's place if not given")
    options = parser.parse_args()
    begin = time.monotonic()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="strata-interop-", dir=options.work) as work:
        work = pathlib.Path(work)
        strata = Strata(options.strata, pathlib.Path(__file__).parent / "pythia.yaml", work)
        check_training(checks, strata, work, options.size, options.steps)
        try:
            check_imports(checks, strata, work)
        except Failed as error:
            checks.say(False, "import", str(error))
    print(f"{checks.passed} passed, {checks.failed} failed, {time.monotonic() - begin:.0f} s")
    raise SystemExit(1 if checks.failed else 0)


main()
