"""Every key of the config reference and every option of every plugin: beside what it is set, and to which other values."""
import dataclasses
import re


SLOTS = {"offload": "offload.optimizer"}  # of a kind whose section has another name


@dataclasses.dataclass(frozen=True)
class Member:
    """A key, "train.clip", or a plugin's option, "optimizer/adamw.betas"."""
    name: str
    type: str
    default: str
    choices: tuple
    least: str = ""
    plugin: str = ""  # "optimizer/adamw"

    @property
    def path(self):
        """In a config."""
        if not self.plugin:
            return self.name
        kind, plugin = self.plugin.split("/")
        return f"{SLOTS.get(kind, kind)}.{plugin}.{self.name.rsplit('.', 1)[1]}"


def members(engine):
    """As the program lists them, in its order."""
    found = []
    for line in engine.run("config", "reference").stdout.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and cells[0].startswith("`"):
            key, kind, default, limits = (cell.strip("`").replace('""', "") for cell in cells[:4])
            choices = tuple(limits.split(", ")) if kind == "choice" else ()
            found.append(Member(key, kind, default, choices, limits.split(" ")[0]))
    for plugin in engine.plugins():
        for option in plugin["options"]:
            found.append(Member(f"{plugin['plugin']}.{option['name']}", option["type"], option["default"], tuple(option["choices"]), option["minimum"],
                                plugin["plugin"]))
    return found


def other_values(member):
    """Values of its type that are not the default."""
    if member.type == "boolean":
        return ["false" if member.default == "true" else "true"]
    if member.type == "choice":
        return [choice for choice in member.choices if choice != member.default]
    if member.type == "size":
        return ["3MiB"]
    if member.type == "integer":
        default = int(float(member.default)) if re.fullmatch(r"-?[\d.e]+", member.default) else 1
        return [str(default + 1)]
    if member.type == "number":
        default = float(member.default) if re.fullmatch(r"-?[\d.e-]+", member.default) else 0.5
        return [repr(default * 0.5 + 0.03)]
    if member.type in ("integers", "numbers"):
        numbers = [float(number) for number in re.findall(r"[\d.e-]+", member.default)]
        return ["[" + ", ".join(repr(number * 0.9) if member.type == "numbers" else str(int(number) + 1) for number in numbers) + "]"]
    return []


# --- beside what a member acts ---------------------------------------------------------------------------------------------------------

# {work}: a folder of the run; {tokens}: a token file; {init}: a folder of weights.
SIZES = ["hidden_size=16", "layers=3", "heads=2", "vocabulary=257"]
PIPELINE = ["parallel.pipeline=2", "scheduler.plugin=1f1b"]
NVME = ["offload.optimizer.plugin=nvme", "offload.optimizer.nvme.path={work}"]
SEPARATE = ["data.documents=separate", "data.document_end=0"]
VALIDATION = ["validation.path={tokens}"]
SAVES = ["checkpoint.path={work}/checkpoints"]
LOCAL = ["step_policy=local", "local.steps=2"]
RECOMPUTED = ["activations.checkpoint=all"]
CYCLES = ["learning_rate.one_cycle.cycle_momentum=true"]
DECAYS = ["learning_rate.one_cycle.decay_step_size=1", "learning_rate.one_cycle.decay_lr_rate=0.5"]
SIGNS = ["train.clip=0", "partitioner.plugin=ddp"]
UPDATES_WITHIN = ["train.clip=0", *PIPELINE[:1]]

# What a key or option hangs on: settings without which it would do nothing, and must then be refused. By the longest part of its name that
# fits.
HANGS_ON = {
    "data.document_end": SEPARATE,
    "validation.": VALIDATION,
    "validation.path": [],
    "validation.documents": VALIDATION + SEPARATE,
    "validation.document_end": VALIDATION + ["validation.documents=separate", "validation.document_end=0"],
    "checkpoint.": SAVES,
    "checkpoint.path": [],
    "checkpoint.keep": [*SAVES, "checkpoint.every=1"],
    "local.": LOCAL,
    "activations.partition": ["parallel.tensor=2", *RECOMPUTED],
    "parallel.sequence": ["parallel.tensor=2"],
    "offload.parameters_ratio": ["offload.parameters.plugin=cpu"],
    "offload.optimizer_ratio": NVME,
    "offload.gradients_ratio": NVME,
    "offload.updates_at_end": NVME,
    "offload.update_elements": NVME,
    "offload.read_ahead": NVME,
    "offload.activations_ratio": ["offload.activations.plugin=nvme", "offload.activations.nvme.path={work}", *RECOMPUTED],
    "offload.activations.plugin": RECOMPUTED,
    "learning_rate/one_cycle.cycle_min_mom": CYCLES,
    "learning_rate/one_cycle.cycle_max_mom": CYCLES,
    "learning_rate/one_cycle.decay_lr_rate": DECAYS,
    "learning_rate/one_cycle.decay_step_size": DECAYS,
    "learning_rate/one_cycle.decay_mom_rate": CYCLES + DECAYS,
    "model/llama.rotary_factor": ["model.llama.rotary_scaling=linear"],
    "model/llama.rotary_original_positions": ["model.llama.rotary_scaling=llama3"],
    "optimizer/sgd.dampening": ["optimizer.sgd.momentum=0.9"],
    "optimizer/sgd.nesterov": ["optimizer.sgd.momentum=0.9"],
    "optimizer/adam_mini.query_key": ["optimizer.adam_mini.head_size=8"],
    "partitioner/hybrid.secondary_shard": ["partitioner.hybrid.stage=3"],
}
for _plugin in ("hybrid", "zero1", "zero2", "zero3"):
    _path, _name = f"partitioner.{_plugin}", f"partitioner/{_plugin}"
    HANGS_ON[f"{_name}.gradient_predivide_factor"] = [f"{_path}.prescale_gradients=false"]
    HANGS_ON[f"{_name}.error_feedback"] = [f"{_path}.gradients_on_wire=int8"]
    for _option in ("error_beta", "error_reset"):
        HANGS_ON[f"{_name}.{_option}"] = [f"{_path}.gradients_on_wire=int8", f"{_path}.error_feedback=true"]
    HANGS_ON[f"{_name}.model_persistence_threshold"] = [f"{_path}.persistence_threshold=1000000"]
    HANGS_ON[f"{_name}.wire_block_size"] = [f"{_path}.weights_on_wire=int8"]
HANGS_ON["precision/fp8.history"] = ["precision.fp8.scaling=delayed"]

# Circumstances in which it can be seen: sizes, a number of steps, a rate.
SEEN_WITH = {
    "checkpoint.": ["train.steps=5"],
    "checkpoint.every": ["train.steps=5"],
    "local.": ["train.steps=5", "partitioner.plugin=hybrid", "partitioner.hybrid.shard_size=1"],
    "parallel.chunks": ["parallel.pipeline=2", "scheduler.plugin=interleaved_1f1b"],
    "parallel.cut": PIPELINE,
    "parallel.layers_per_chunk": PIPELINE,
    "scheduler.plugin": PIPELINE,
    "step_policy": PIPELINE,
    "scheduler/interleaved_1f1b.": ["parallel.pipeline=2", "train.accumulation=4"],
    "scheduler/pipedream.": UPDATES_WITHIN + ["train.accumulation=4"],
    "offload.parameters": ["partitioner.plugin=zero3"],
    "offload.activations.plugin": ["offload.activations.nvme.path={work}"],
    "learning_rate/": ["train.steps=8"],
    "learning_rate/one_cycle.": ["train.steps=10", "learning_rate.one_cycle.cycle_first_step_size=3", "learning_rate.one_cycle.cycle_min_lr=0.001"],
    "learning_rate/one_cycle.cycle_first_step_size": ["train.steps=8"],
    "data/nanogpt.mask": ["{work}/none"],
    "learning_rate/one_cycle.cycle_max_lr": ["train.steps=8", "learning_rate.base=auto", "learning_rate.one_cycle.cycle_max_lr=0.01"],
    "learning_rate/lr_range_test.": ["train.steps=8", "learning_rate.base=auto"],
    "learning_rate/warmup_": ["train.steps=8"],
    "learning_rate/wsd.": ["train.steps=8", "learning_rate.wsd.decay_steps=4"],
    "learning_rate/wsd.decay_steps": ["train.steps=8"],
    "model/gpt2.": [f"model.gpt2.{size}" for size in SIZES],
    "model/llama.": [f"model.llama.{size}" for size in SIZES],
    "offload/nvme.": ["offload.optimizer.nvme.path={work}"],
    "optimizer/": ["train.steps=5"],
    "optimizer/onebit_adam.": ["train.steps=5", *SIGNS],
    "optimizer/zero_one_adam.": ["train.steps=5", *SIGNS],
    "optimizer/adam_mini.query_key": ["train.steps=5", "model.plugin=llama", *(f"model.llama.{size}" for size in SIZES)],
    "optimizer/zero_one_adam.local_step": ["train.steps=9", *SIGNS, "optimizer.zero_one_adam.var_freeze_step=1"],
    "optimizer/zero_one_adam.local_step_clipper": ["train.steps=12", *SIGNS, "learning_rate.base=1e-4", "optimizer.zero_one_adam.var_freeze_step=1",
                                                   "optimizer.zero_one_adam.local_step_scaler=1"],
    "optimizer/schedule_free.weight_lr_power": ["train.steps=5", "learning_rate.warmup=3"],
    "precision/fp16.": ["train.steps=5"],
    "precision/fp16.hysteresis": ["train.steps=5", "precision.fp16.initial_scale_power=100"],
    "precision/fp16.min_loss_scale": ["train.steps=5", "precision.fp16.initial_scale_power=100"],
    "precision/fp8.history": ["train.steps=5"],
}
for _plugin in ("hybrid", "zero1", "zero2", "zero3"):
    for _option in ("prescale_gradients", "gradient_predivide_factor"):  # powers of two, which fp16 alone can round
        SEEN_WITH[f"partitioner/{_plugin}.{_option}"] = ["precision.plugin=fp16", "precision.fp16.reduction=fp16",
                                                         "precision.fp16.initial_scale_power=0"]
for _precision in ("fp32", "bf16", "fp16", "fp8", "mxfp8"):
    SEEN_WITH[f"precision/{_precision}.max_consecutive_skips"] = ["train.steps=5", "learning_rate.base=1e30"]
for _warmup in ("lr", "decay_lr", "cosine_lr"):
    SEEN_WITH[f"learning_rate/warmup_{_warmup}."] = ["train.steps=8", f"learning_rate.warmup_{_warmup}.warmup_num_steps=4"]
    SEEN_WITH[f"learning_rate/warmup_{_warmup}.warmup_num_steps"] = ["train.steps=8"]
    if _warmup != "cosine_lr":
        SEEN_WITH[f"learning_rate/warmup_{_warmup}.warmup_max_lr"] = ["train.steps=8", "learning_rate.base=auto", f"learning_rate.warmup_{_warmup}.warmup_max_lr=0.01"]

# Values that do something, where the one beside the default does not, or is of no type that other_values() knows.
VALUES = {
    "device.plugin": ["none"],
    "model.plugin": ["none"],
    "model.init": ["{work}/none"],
    "model.seq_len": ["4"],
    "data.plugin": ["megatron"],
    "data.path": ["{work}/none"],
    "validation.plugin": ["megatron"],
    "validation.path": ["{tokens}"],
    "validation.documents": ["packed"],
    "validation.every": ["1"],
    "train.micro_batch": ["1"],
    "train.accumulation": ["3"],
    "train.global_batch": ["16"],
    "train.clip": ["0.01"],
    "learning_rate.plugin": ["cosine"],
    "learning_rate.warmup": ["2"],
    "parallel.data": ["1"],
    "parallel.cut": ["layers"],
    "parallel.chunks": ["1"],
    "parallel.layers_per_chunk": ["[1, 4]"],
    "partitioner.plugin": ["zero3"],
    "precision.plugin": ["bf16"],
    "scheduler.plugin": ["gpipe"],
    "optimizer.plugin": ["sgd"],
    "local.steps": ["1"],
    "local.fragments": ["2"],
    "activations.checkpoint": ["all", "[1]"],
    "offload.parameters.plugin": ["cpu"],
    "offload.optimizer.plugin": ["cpu"],
    "offload.activations.plugin": ["nvme"],
    "offload.update_elements": ["100"],
    "offload.read_ahead": ["0"],
    "offload.updates_at_end": ["1"],
    "offload.activations_ratio": ["0"],
    "checkpoint.path": ["{work}/checkpoints"],
    "metrics.csv": ["{work}/csv"],
    "parameters": ['[{match: "*", weight_decay: 0.5}]'],
    "data/nanogpt.mask": ["{work}/none"],
    "learning_rate/one_cycle.cycle_max_lr": ["0.02"],
    "learning_rate/warmup_decay_lr.warmup_max_lr": ["0.02"],
    "learning_rate/warmup_lr.warmup_max_lr": ["0.02"],
    "learning_rate/warmup_cosine_lr.total_num_steps": ["6"],
    "learning_rate/warmup_decay_lr.total_num_steps": ["6"],
    "learning_rate/wsd.decay_steps": ["4"],
    "offload/nvme.path": ["{work}/none"],
    "offload/nvme.block_size": ["4KiB"],
    "optimizer/adafactor.d": ["1.5"],
    "optimizer/adam_mini.head_size": ["8"],
    "optimizer/adam_mini.query_key": ['"*.nothing"'],
    "optimizer/lamb.min_coeff": ["5"],
    "optimizer/lamb.max_coeff": ["0.011"],
    "optimizer/muon.matrices": ['"*.dense.weight"'],
    "optimizer/onebit_adam.freeze_step": ["2"],
    "optimizer/zero_one_adam.var_freeze_step": ["2"],
    "optimizer/zero_one_adam.var_update_scaler": ["1"],
    "optimizer/zero_one_adam.local_step_scaler": ["1"],
    "optimizer/zero_one_adam.local_step_clipper": ["2"],
    "precision/fp16.loss_scale_window": ["1"],
    "precision/fp16.min_loss_scale": ["1e30"],
    "precision/fp8.history": ["1"],
    "precision/fp8.keep_bf16": ['"*.dense.weight"'],
    "precision/mxfp8.keep_bf16": ['"*.dense.weight"'],
    "scheduler/interleaved_1f1b.micro_batch_group": ["4"],
    "scheduler/pipedream.micro_batches_per_update": ["2"],
    "learning_rate/one_cycle.cycle_second_stair_count": ["2"],
    "learning_rate/one_cycle.decay_step_size": ["2"],
}
for _model in ("gpt2", "gpt_neox", "llama"):
    VALUES[f"model/{_model}.maximum_positions"] = ["4"]
    VALUES[f"model/{_model}.hidden_size"] = ["32"]
    VALUES[f"model/{_model}.vocabulary"] = ["260"]
for _precision in ("fp32", "bf16", "fp16", "fp8", "mxfp8"):
    VALUES[f"precision/{_precision}.max_consecutive_skips"] = ["1"]
for _plugin in ("hybrid", "zero1", "zero2", "zero3"):
    VALUES[f"partitioner/{_plugin}.gradient_predivide_factor"] = ["5.960464477539063e-08"]
    VALUES[f"partitioner/{_plugin}.error_reset"] = ["2"]
    VALUES[f"partitioner/{_plugin}.wire_block_size"] = ["16"]
    VALUES[f"partitioner/{_plugin}.reduce_bucket_size"] = ["100"]
    if _plugin != "zero3":
        VALUES[f"partitioner/{_plugin}.allgather_bucket_size"] = ["100"]
for _plugin in ("hybrid", "zero3"):
    for _option, _value in (("prefetch_bucket_size", "1"), ("max_live_parameters", "1"), ("max_reuse_distance", "100000"),
                            ("persistence_threshold", "1000000"), ("model_persistence_threshold", "1")):
        VALUES[f"partitioner/{_plugin}.{_option}"] = [_value]

# Members that change nothing that such a run shows, and why.
SHOWN_NOWHERE = {
    "train.log_every": "lines of progress: test_log_every",
    "communicator.plugin": "ranks are threads here: tests/communicator, tests/matrix",
    "communicator.timeout_s": "a limit of waiting: tests/faults",
    "communicator/shm.slot_size": "memory between processes: tests/unit/communicator",
    "communicator/shm.ring_size": "memory between processes: tests/unit/communicator",
    "compare": "`strata compare` alone trains the variants: tests/compare; a program refuses it",
    "export": "what is trained here exports without it: test_export, tests/unit/run/engine_report_test.cpp",
    "memory_budget": "chosen by: tests/deepspeed, tests/auto_offload; refused elsewhere: test_memory_budget",
    "device_budget": "a limit: tests/auto_offload, test_device_budget",
    "offload.host.plugin": "offload.automatic measures processes: tests/auto_offload",
    "offload.disk.plugin": "offload.automatic measures processes: tests/auto_offload",
    "plugin_path": "where plugins are looked for: tests/unit/plugins",
    "automatic.device": "what auto means here: tests/unit/config/automatic_test.cpp",
    "automatic.offload.host": "what auto means here: tests/unit/config/automatic_test.cpp",
    "automatic.communicator": "what auto means here: tests/unit/config/automatic_test.cpp",
    "device/cuda.ranks_per_gpu": "needs a GPU: tests/gpu",
    "precision/fp16.consecutive_hysteresis": "needs an overflow after a good step: tests/unit/precision",
    "partitioner/zero1.overlap_comm": "when a sum is waited for: tests/unit/partitioner/sharding_test.cpp",
    "offload/nvme.queue_depth": "blocks in flight: tests/unit/offload",
    "offload/nvme.block_size": "how transfers are cut: tests/unit/offload",
    "offload/nvme.interface": "how blocks reach the disk: tests/unit/offload",
    "offload/nvme.threads": "how blocks reach the disk: tests/unit/offload",
    "offload/nvme.checksums": "finds damage, which is not here: tests/unit/offload",
    "offload/nvme.timeout_s": "a limit of waiting: tests/unit/offload",
}

# Options of a model that leave its function of the weights as it is: how it is computed, what is reported, and what acts in training only.
NO_ARCHITECTURE = {"loss_chunk", "mlp_chunk", "z_loss", "report_largest_logit", "embedding_dropout", "attention_dropout", "hidden_dropout"}

# Values that spell what the default means.
SAME_MODEL = {("model/llama.rotary_scaling", "none"), ("model/llama.variant", "llama"), ("model/llama.tie_embeddings", "false")}

# Commands whose --nproc is a number to plan for: they start no ranks.
PLANS_FOR_RANKS = {"plan", "config show", "config convert", "config conflicts"}


def longest(table, name):
    """The entry of the longest part of a name that fits."""
    fits = [part for part in table if name.startswith(part)]
    return table[max(fits, key=len)] if fits else []


def surroundings(member):
    """What to set beside a member: what it hangs on, and all else."""
    chosen = []
    if member.plugin:
        kind, plugin = member.plugin.split("/")
        chosen = [f"{SLOTS.get(kind, kind)}.plugin={plugin}"]
    return longest(HANGS_ON, member.name), chosen + longest(SEEN_WITH, member.name)


def values(member):
    return VALUES.get(member.name) or other_values(member)
