"""Values of options that tests choose so that what they compare can be compared, and what they know of numbers. No plugin has to be here: of
one that is not, less is compared, or with the widest bound."""

# An optimizer's learning rate and options with which its update is steady: gradients that differ by a rounding give weights that
# differ by one. An epsilon does that: its default divides a gradient that is nearly zero by itself. Any other optimizer gets the
# first line.
OPTIMIZER_SETTINGS = {
    None: ("1e-3", []),
    "adamw": ("1e-3", ["epsilon=1e-3", "betas=[0.9, 0.99]"]),  # bf16 moments need such betas
    "adamw_8bit": ("1e-3", ["epsilon=1e-3"]),
    "adagrad": ("1e-3", ["epsilon=1e-3"]),
    "adam_mini": ("1e-3", ["epsilon=1e-3"]),
    "lamb": ("1e-3", ["epsilon=1e-3"]),
    "lion": ("1e-4", []),
    "onebit_adam": ("1e-3", ["epsilon=1e-3"]),
    "schedule_free": ("1e-3", ["epsilon=1e-3"]),
    "sgd": ("0.05", ["momentum=0.9"]),
    "zero_one_adam": ("1e-3", ["epsilon=1e-3", "var_update_scaler=1000"]),
}
# Settings with which an update is not steady: a difference of a rounding becomes one of 1/256 or more of a moment, or of a sign.
UNSTEADY = {"adamw:moments=bf16", "adamw_8bit", "lion"}

# Values of a partitioner's options that change no sum: they move work in time, cut it, or move it another way. Each line is tried with
# every partitioner that has any of its options.
TUNINGS = {
    "at_once": {"prefetch_layers": "0", "max_reuse_distance": "0", "overlap_comm": "false"},
    "far_ahead": {"prefetch_layers": "3", "max_reuse_distance": "100000", "allgather_bucket_size": "700"},
    "tight": {"prefetch_layers": "2", "prefetch_bucket_size": "20000", "max_live_parameters": "30000", "reduce_bucket_size": "1000"},
    "other_ways": {"persistence_threshold": "20000", "reduce_scatter": "false", "prescale_gradients": "false"},
}
# Those of them that only a partitioner that releases parameters obeys.
TUNES_GATHERING = {"prefetch_layers", "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance", "persistence_threshold"}
# Options that are no choices and change the order of sums, and the values to try beside the default.
VALUES = {"shard_size": ("1",)}
# Options that have an effect only beside another one's value.
BESIDE = {"error_feedback": "gradients_on_wire=int4"}

# Roundings of a precision, relative: half a unit of the last place, but of those with 8 bits four roundings of bf16 (matrix/bounds.py).
ROUNDING = {"fp32": 2.0**-24, "bf16": 2.0**-9, "fp16": 2.0**-11, "mantissa10": 2.0**-11, "fp8": 2.0**-7, "mxfp8": 2.0**-7}
COARSEST = ROUNDING["bf16"]  # of precisions that are not here
SIGNIFICANT_BITS = {"bf16": 8, "fp16": 11, "mantissa10": 11, "fp8": 4, "mxfp8": 4}  # of what products multiply
