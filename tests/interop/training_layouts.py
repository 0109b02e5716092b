"""At which layouts Strata trains beside transformers."""

# Hidden size, layers, heads, vocabulary. small is pythia-14m without nine tenths of it, which are its vocabulary: where libtorch has no
# instructions for bf16 products, the references in bf16 take most of the time.
SIZES = {"small": (128, 6, 4, 4099), "pythia-14m": (128, 6, 4, 50304), "pythia-70m": (512, 6, 8, 50304)}
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
