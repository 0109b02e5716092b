"""`strata eval` beside transformers: the mean loss of the same Hugging Face folder over the same tokens, of random weights and of weights
that Strata trained and exported. Every layout to 1e-5 of transformers', and to 1e-6 of one rank's. Exit status 1 if any failed.
"""
import argparse
import math
import pathlib
import tempfile

try:
    import reference
    import torch
except ImportError as error:
    raise SystemExit(f"FAILED: {error}. Run cmake/bootstrap.sh --for interop, whose Python runs this test")
from comparison import Checks, largest_error
from strata_run import Strata

SEQUENCE = 64
SAMPLES = 17  # which neither the ranks nor the micro-batches divide
VOCABULARY = 1009
LAYOUTS = {
    "1 rank": (1, ("train.micro_batch=4",)),
    "2 ranks zero3": (2, ("partitioner.plugin=zero3", "train.micro_batch=3")),
    "3 ranks ddp": (3, ("partitioner.plugin=ddp", "train.micro_batch=4")),
    "2 stages 1f1b": (2, ("parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=3")),
}


def their_loss(folder, tokens):
    model = reference.open_folder(folder)[0]
    with torch.no_grad():
        return reference.mean_loss(model, *reference.batch(tokens, SEQUENCE, 0, SAMPLES)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the program")
    parser.add_argument("--work", help="where to make a temporary folder")
    options = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="strata-evaluation-", dir=options.work) as work:
        work = pathlib.Path(work)
        strata = Strata(options.strata, pathlib.Path(__file__).parent / "pythia.yaml", work)
        init, tokens_file = work / "init", work / "tokens.bin"
        reference.make_model(64, 3, 4, VOCABULARY).save_pretrained(init)
        reference.make_tokens(tokens_file, VOCABULARY, SAMPLES * SEQUENCE + 9)
        tokens = reference.numpy.memmap(tokens_file, dtype="<u2", mode="r")
        size = f"model.seq_len={SEQUENCE}"
        trained = strata.train(init, tokens_file, 4, 2, (size, *LAYOUTS["2 ranks zero3"][1])).export
        losses = {}
        for name, folder in (("random weights", init), ("an export", trained)):
            truth = losses[name] = their_loss(folder, tokens)
            first = None
            for layout, (ranks, settings) in LAYOUTS.items():
                found = strata.evaluate(folder, tokens_file, ranks, (size, *settings))
                first = first or found["loss"]
                where = f"{name}, {layout}"
                checks.say((found["samples"], found["tokens"]) == (SAMPLES, SAMPLES * SEQUENCE), f"{where}: samples", str(found["samples"]))
                checks.at_most(f"{where}: loss beside transformers'", largest_error([found["loss"]], [truth]), 1e-5)
                checks.at_most(f"{where}: perplexity", largest_error([found["perplexity"]], [math.exp(truth)]), 1e-4)
                checks.at_most(f"{where}: loss beside one rank's", largest_error([found["loss"]], [first]), 1e-6)
        checks.at_least("training moved the loss", losses["random weights"] - losses["an export"], 0.01)
    print(f"{checks.passed} passed, {checks.failed} failed")
    raise SystemExit(1 if checks.failed else 0)


main()
