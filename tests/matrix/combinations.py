"""The possible combinations: the axes, made from the registry, and the rules by which a combination is refused: the conflicts that
`strata config conflicts` lists, and what single plugins refuse. Which features a plugin has, the program says; a combination has those of its
choices, and those that FEATURES finds in it. The program also says what a schedule refuses and in which order it sums. frozen_test.py keeps
conflicts and refusals from changing unseen. Which values of options are tried: sample_values.py."""
import collections
import dataclasses
import functools
import re
import tempfile

from sample_values import BESIDE, OPTIMIZER_SETTINGS, TUNES_GATHERING, TUNINGS, UNSTEADY, VALUES

# Divisible by what 1, 2, 3 and 4 ranks make of 1 and 4 micro-batches.
GLOBAL_BATCH = 48


@dataclasses.dataclass(frozen=True)
class Choice:
    """One value of an axis. `plugin` is its manifest's full name, if it is one."""
    label: str
    settings: tuple = ()
    plugin: str = ""
    family: str = ""  # the label of the plugin as it is, of which this is one with another value of an option

    def __str__(self):
        return self.label


class Combination:
    """One choice per axis."""

    def __init__(self, choices):
        self.choices = dict(choices)

    @functools.cached_property
    def id(self):
        return " ".join(f"{axis}={choice}" for axis, choice in self.choices.items())

    def __getitem__(self, axis):
        return self.choices[axis]

    def number(self, axis):
        return int(self.choices[axis].label)

    def replaced(self, **choices):
        return Combination({**self.choices, **choices})

    def __eq__(self, other):
        return self.id == other.id

    def __hash__(self):
        return hash(self.id)

    @property
    def data_parallel(self):
        return self.number("ranks") // (self.number("stages") * self.tensor)

    @property
    def tensor(self):
        return 1 if self["tensor"].label == "1" else 2


class Space:
    """The axes of one registry, for models, (name, sizes), of so many layers; the config has the first. The first choice of each axis is the simplest: all of them together are
    the reference. Without `communicators`, ranks need none. `program` answers what can be combined (program.py)."""

    def __init__(self, plugins, defaults, layers, models, program, accumulations=("1", "4"), communicators=True):
        self.layers, self.program = layers, program
        self.manifests = {plugin["plugin"]: plugin for plugin in plugins}
        self.defaults = defaults
        self.axes = collections.OrderedDict()
        for kind in ("partitioner", "precision", "scheduler", "optimizer"):
            self.axes[kind] = self._plugins_of(kind)
        self.axes["offload"] = [Choice("none"), *self._offloads()]
        self.axes["communicator"] = [choice for choice in self._plugins_of("communicator") if self._reaches_memory(choice)]
        if not communicators:
            del self.axes["communicator"][1:]
        self.axes["checkpoint"] = [Choice("none"), Choice("all", ("activations.checkpoint=all",)),
                                   Choice("some", ("activations.checkpoint=[1, 4]",))]
        self.axes["tuning"] = [Choice("default")] + [
            Choice(name) for name, values in TUNINGS.items() if any(values.keys() & self._options(choice) for choice in self.axes["partitioner"])]
        self.axes["model"] = [Choice(models[0][0])] + [
            Choice(name, (f"model.plugin={name}", *(f"model.{key}={value}" for key, value in sizes.items()))) for name, sizes in models[1:]]
        self.axes["tensor"] = [Choice("1"), Choice("2", ("parallel.tensor=2",)),
                               Choice("sequence", ("parallel.tensor=2", "parallel.sequence=true"))]
        self.axes["embeddings"] = [Choice("untied", ("model.tie_embeddings=false",)), Choice("tied", ("model.tie_embeddings=true",))]
        self.axes["policy"] = [Choice("plain"), Choice("delayed", ("step_policy=delayed",)),
                               Choice("speculative", ("step_policy=speculative",)),
                               Choice("local", ("step_policy=local", "local.steps=4", "local.fragments=2"))]
        self.axes["accumulation"] = [Choice(count) for count in accumulations]
        self.axes["stages"] = [Choice("1"), Choice("2"), Choice("3"), Choice("4")]
        self.axes["chunks"] = [Choice("auto"), *(Choice(count, (f"parallel.chunks={count}",)) for count in "123")]
        self.axes["ranks"] = [Choice(count) for count in ("1", "2", "3", "4", *(() if communicators else ("6", "8")))]
        conflicts = [Conflict(row) for row in program.conflicts()]
        reached = [one for one in conflicts if one.is_reached()]
        # In the order in which the program checks them.
        self.rules = (*RULES_OF_CONFIGS, *(one for one in reached if not one.in_training_only), *RULES_OF_PLUGINS,
                      *(one for one in reached if one.in_training_only and not one.needs_replicas()), *RULES_OF_VALUES,
                      *(one for one in reached if one.needs_replicas()))

    def _offloads(self):
        """Every device for each slot, for what is trained, and for all, whole or a part of it; state comes and is updated in small parts
        where it moves."""
        slots = [found[1] for found in (re.fullmatch(r"offload\.(\w+)_ratio", key) for key in self.defaults) if found and found[1] != "gradients"]
        choices = []
        trained = [slot for slot in slots if slot != "activations"]
        parts = [("all", slots, "1"), ("all of 0.3", slots, "0.3"), ("all of 0", slots, "0")]
        for label, chosen, ratio in [*((slot, [slot], "1") for slot in slots), ("trained", trained, "1"), *parts]:
            for name in self._names("offload"):
                settings = [f"offload.{slot}.plugin={name}" for slot in chosen]
                if self._on_disk(name):
                    settings += [f"offload.{slot}.{name}.path={tempfile.gettempdir()}" for slot in chosen]
                if ratio != "1":
                    settings += [f"offload.{slot}_ratio={ratio}" for slot in chosen]
                if "optimizer" in chosen and self._on_disk(name):  # elsewhere state is updated in place
                    settings.append("offload.update_elements=1000")
                choices.append(Choice(f"{label}:{name}", tuple(settings), f"offload/{name}"))
                if label == "trained":
                    more = ["offload.gradients_ratio=0.3"]
                    if self._on_disk(name):  # elsewhere every update is made at the end
                        more.append("offload.updates_at_end=0.5")
                    choices.append(Choice(f"trained, divided:{name}", (*settings, *more), f"offload/{name}"))
        return choices

    def _on_disk(self, offload):
        return any(option["name"] == "path" for option in self.manifests[f"offload/{offload}"]["options"])

    def _names(self, kind):
        """The default plugin first."""
        names = sorted(name.split("/")[1] for name in self.manifests if name.startswith(kind + "/"))
        return sorted(names, key=lambda name: name != self.defaults.get(kind + ".plugin"))

    def _reaches_memory(self, communicator):
        """Whether it is no other device's own."""
        by_device = dict(re.findall(r"(\w+): (\[.*?\]|\w*)", self.defaults["automatic.communicator"]))
        by_device.pop(self.defaults["device.plugin"], None)
        return not any(re.search(rf"\b{communicator.plugin.split('/')[1]}\b", names) for names in by_device.values())

    def _options(self, choice):
        return {option["name"]: option for option in self.manifests[choice.plugin]["options"]} if choice.plugin else {}

    def _plugins_of(self, kind):
        """Every plugin of a kind as it is, and with each other value of each option that is a choice and no tuning."""
        choices = []
        for name in self._names(kind):
            plain = Choice(name, (f"{kind}.plugin={name}",), f"{kind}/{name}")
            if kind == "optimizer":
                rate, options = OPTIMIZER_SETTINGS.get(name, OPTIMIZER_SETTINGS[None])
                settings = plain.settings + (f"learning_rate.base={rate}",) + tuple(f"{kind}.{name}.{option}" for option in options)
                plain = dataclasses.replace(plain, settings=settings)
            choices.append(plain)
            for option in self._options(plain).values():
                values = ["false", "true"] if option["type"] == "boolean" else VALUES.get(option["name"], option["choices"])
                for value in values:
                    if value != option["default"] and not any(option["name"] in tuning for tuning in TUNINGS.values()):
                        setting = f"{option['name']}={value}"
                        beside = (f"{kind}.{name}.{BESIDE[option['name']]}",) if option["name"] in BESIDE else ()
                        choices.append(Choice(f"{name}:{setting}", plain.settings + beside + (f"{kind}.{name}.{setting}",), plain.plugin, name))
        return choices

    @functools.cache
    def _tuned(self, tuning, partitioner):
        """The options of the tuning that the partitioner has: what it does not release is not gathered, and no gathering is tuned."""
        values = {option: value for option, value in TUNINGS.get(tuning, {}).items() if option in self._options(partitioner)}
        if values.keys() & TUNES_GATHERING and not self.releases_parameters(partitioner):
            return {option: value for option, value in values.items() if option not in TUNES_GATHERING}
        return values

    def simplest(self):
        return Combination({axis: choices[0] for axis, choices in self.axes.items()})

    def parse(self, text):
        """The combination with this id; axes that are not named take their simplest choice."""
        parts = re.split(rf" (?=(?:{'|'.join(self.axes)})=)", text.strip())  # labels have spaces too
        named = dict(part.split("=", 1) for part in parts)
        combination = self.simplest()
        for axis, label in named.items():
            found = [choice for choice in self.axes.get(axis, []) if choice.label == label]
            if not found:
                raise SystemExit(f"{axis}={label}: there is no such choice; {axis} has {[str(c) for c in self.axes.get(axis, [])]}")
            combination = combination.replaced(**{axis: found[0]})
        return combination

    def equivalence(self, choice):
        """The promise of the plugin with these options: of several, the last's."""
        if not choice.plugin:
            return "bitwise"
        manifest, promise = self.manifests[choice.plugin], self.manifests[choice.plugin]["equivalence"]
        for setting in choice.settings:
            promise = manifest["equivalence_with"].get(setting.split(".", 2)[-1], promise)
        return promise

    def compresses(self, combination):
        """Whether numbers depend on how gradients or weights are cut into messages."""
        return self.equivalence(combination["partitioner"]).startswith("tolerance")

    def shard_size(self, combination):
        """Ranks of a group, of a partitioner that has groups."""
        options = self.manifests[combination["partitioner"].plugin]["options"]
        size = next((option["default"] for option in options if option["name"] == "shard_size"), "1")
        return int(next((setting.split("=")[1] for setting in combination["partitioner"].settings if ".shard_size=" in setting), size))

    @functools.cache
    def has_replicas(self, partitioner):
        """Whether it shards in groups and replicates across them."""
        local = next(choice for choice in self.axes["policy"] if choice.label == "local")
        reason = next(row["reason"] for row in self.program.conflicts() if row["first"] == "a partitioner without replicas")
        return reason not in self.program.refusal(2, tuple(self._chosen(self.simplest().replaced(partitioner=partitioner, policy=local))))

    def of_whole_replicas(self):
        """The partitioner with which each group of ranks that train by themselves is one rank."""
        simplest = self.simplest()
        return next(choice for choice in self.axes["partitioner"]
                    if self.has_replicas(choice) and self.shard_size(simplest.replaced(partitioner=choice)) == 1)

    def releases_parameters(self, partitioner):
        return "a partitioner that releases parameters" in self.features_of("partitioner", partitioner)

    def updates_neighbours(self, optimizer):
        """Whether it updates blocks of neighbouring elements, which tensor-parallel ranks may not cut."""
        tensor = next(choice for choice in self.axes["tensor"] if choice.label == "2")
        settings = [*self._chosen(self.simplest().replaced(optimizer=optimizer, tensor=tensor)), "train.clip=0"]
        return re.search(r"updates \d+ neighbouring elements", self.program.refusal(2, tuple(settings))) is not None

    def schedule(self, combination, chunks=None):
        """What the program says of the combination's schedule; of the number of chunks that the scheduler asks for, unless it is given."""
        return self.program.schedule(combination["scheduler"].settings, combination.number("stages"), combination.number("accumulation"), chunks)

    def sums_a_tie_apart(self, combination):
        """Whether it sums the gradients of tied embeddings in another order than the simplest scheduler does."""
        if combination["embeddings"].label != "tied" or combination["scheduler"] == self.axes["scheduler"][0]:
            return False
        chunks = combination["chunks"].label
        simplest = self.schedule(combination.replaced(scheduler=self.axes["scheduler"][0]))
        return self.schedule(combination, None if chunks == "auto" else chunks).order_of_tie() != simplest.order_of_tie()

    @functools.cache
    def features_of(self, axis, choice):
        """The features that the program finds in a run with this choice, the simplest of all other axes, and micro-batches enough for all."""
        combination = self.simplest().replaced(accumulation=self.axes["accumulation"][-1]).replaced(**{axis: choice})
        return self.program.features([*self._chosen(combination), "train.clip=0"])

    def has(self, feature, combination):
        return FEATURES[feature](self, combination)

    def updates_within_the_step(self, combination):
        return self.has("a scheduler that updates within the step", combination)

    def is_steady(self, combination):
        optimizer = combination["optimizer"]
        return (optimizer.family or optimizer.label) in OPTIMIZER_SETTINGS and optimizer.label not in UNSTEADY

    def _chosen(self, combination):
        settings = [setting for choice in combination.choices.values() for setting in choice.settings]
        return settings + [f"train.accumulation={combination['accumulation']}", f"parallel.pipeline={combination['stages']}"]

    def settings(self, combination):
        settings = self._chosen(combination)
        name = combination["partitioner"].plugin.split("/")[1]
        tuned = self._tuned(combination["tuning"].label, combination["partitioner"])
        settings += [f"partitioner.{name}.{option}={value}" for option, value in tuned.items()]
        if self.updates_within_the_step(combination) or self.has("an optimizer that does its own communication", combination):
            settings.append("train.clip=0")  # needs the norm of the whole gradient before an update
        return settings

    def applicable(self, combination):
        """Whether the partitioner has any option of the tuning."""
        return combination["tuning"].label == "default" or bool(self._tuned(combination["tuning"].label, combination["partitioner"]))

    def refusal(self, combination):
        """What the error must say, as a regular expression, when a rule forbids the combination; None when it is to work."""
        return self.rule_and_refusal(combination)[1]

    def rule_and_refusal(self, combination):
        return next(((rule, text) for rule in self.rules if (text := rule(self, combination)) is not None), (None, None))


def _indivisible_ranks(_, combination):
    ranks, stages = combination.number("ranks"), combination.number("stages")
    return ranks % (stages * combination.tensor) and (
        rf"parallel: world size {ranks} \(.*\) is not divisible by pipeline {stages} x tensor {combination.tensor}") or None


def _indivisible_batch(_, combination):
    parts = combination.number("accumulation") * combination.data_parallel
    return GLOBAL_BATCH % parts and (rf"train.global_batch {GLOBAL_BATCH} / \(accumulation {combination['accumulation']} x data-parallel "
                                     rf"size {combination.data_parallel} = {parts}\) is not a whole number") or None


def _late_updates_and_other_policies(_, combination):
    policy = combination["policy"].label
    return policy != "plain" and "offload.updates_at_end=0.5" in combination["offload"].settings and (
        rf"offload\.updates_at_end is 0\.5, which has no effect: step_policy is {policy}, .*; set step_policy: plain") or None


def _parameters_stay_below_stage_3(space, combination):
    offloaded = combination["offload"].label.startswith(("parameters:", "trained", "all"))
    return offloaded and not space.releases_parameters(combination["partitioner"]) and (
        r"offload.parameters: this partitioner keeps parameters whole") or None


def _chunks_of_the_schedule(space, combination):
    chunks = combination["chunks"].label
    refused = chunks != "auto" and int(chunks) not in space.program.chunks(combination["scheduler"].plugin)
    return refused and r"chunks? per stage, but .*; leave (it|parallel\.chunks) out" or None


def _more_chunks_than_layers(space, combination):
    given = combination["chunks"].label
    per_stage = int(given) if given != "auto" else min(space.program.chunks(combination["scheduler"].plugin))
    chunks = combination.number("stages") * per_stage
    return chunks > space.layers and rf"{space.layers} layers .*{chunks} chunks" or None


def _micro_batches_of_the_schedule(space, combination):
    refusal = space.schedule(combination).refusal
    return refusal and re.escape(refusal)


def _compressed_and_all_reduced(space, combination):
    tuned = space._tuned(combination["tuning"].label, combination["partitioner"])
    compressed = any("gradients_on_wire=" in setting for setting in combination["partitioner"].settings)
    return compressed and tuned.get("reduce_scatter") == "false" and "gradients_on_wire is int. and reduce_scatter is false" or None


def _weights_travel_in_one_way(_, combination):
    gathers = any(".gather=" in setting for setting in combination["precision"].settings)
    return gathers and "weights_on_wire=int8" in combination["partitioner"].label and (
        r"weights_on_wire is int8 and the precision policy sends weights in its own 8-bit format; leave weights_on_wire or that option") or None


def _rows_of_a_tie(_, combination):
    return combination["embeddings"].label == "tied" and "sparse_gradients=true" in combination["partitioner"].label and (
        r"sparse_gradients is true and \S+ is tied: .*; leave sparse_gradients out") or None


def _indivisible_shards(space, combination):
    size = space.shard_size(combination)
    return combination.data_parallel % size and (rf"shard_size is {size}, which does not divide the {combination.data_parallel} "
                                                 r"data-parallel ranks; the nearest") or None


class Conflict:
    """A row of the program's table as a rule."""

    def __init__(self, row):
        self.features, self.in_training_only = (row["first"], row["second"]), row["in_training_only"]
        self.text = re.escape(f": {row['reason']}; {row['first_remedy']}, or {row['second_remedy']}")

    def is_reached(self):
        """Whether combinations have both features."""
        return not any(FEATURES[feature] is None for feature in self.features)

    def needs_replicas(self):
        """Whether it is checked once the partitioner has its groups."""
        return bool({"a partitioner without replicas", "one group of data-parallel ranks"} & set(self.features))

    def __call__(self, space, combination):
        return self.text if all(space.has(feature, combination) for feature in self.features) else None


def _plugin_has(axis, feature):
    return lambda space, combination: feature in space.features_of(axis, combination[axis])


def _offloads(*labels):
    return lambda _, combination: combination["offload"].label.startswith(labels)


# How a feature is found in a combination. None: combinations do not have it.
FEATURES = {
    "offload: auto": None,
    "offload.activations": _offloads("activations:", "all"),
    "offload.optimizer": _offloads("optimizer:", "trained", "all"),
    "offload.parameters": _offloads("parameters:", "trained", "all"),
    "step_policy: speculative": lambda _, combination: combination["policy"].label == "speculative",
    "step_policy: local": lambda _, combination: combination["policy"].label == "local",
    "step_policy: delayed, speculative or local": lambda _, combination: combination["policy"].label != "plain",
    "parallel.cut: measured, with several stages": None,
    "parallel.tensor: 1": lambda _, combination: combination.tensor == 1,
    "parallel.tensor above 1": lambda _, combination: combination.tensor > 1,
    "parallel.sequence": lambda _, combination: combination["tensor"].label == "sequence",
    "activations.checkpoint: none": lambda _, combination: combination["checkpoint"].label == "none",
    "activations.partition": None,
    "data.order: own": None,
    "data.documents: separate": None,
    "a data plugin without own_order": None,
    "train.clip above 0": None,  # Space.settings leaves it out where it is refused
    "a communicator with one_host": None,
    "ranks on several hosts": None,
    # The matrices of this model's layers are small: a part of a row is shorter than a block.
    "an optimizer with units that span parts of the tensor group":
        lambda space, combination: combination.tensor > 1 and space.updates_neighbours(combination["optimizer"]),
    "a partitioner without replicas": lambda space, combination: not space.has_replicas(combination["partitioner"]),
    "one group of data-parallel ranks": lambda space, combination: space.shard_size(combination) == combination.data_parallel,
    "a trained parameter that layers of several chunks use":
        lambda _, combination: combination["embeddings"].label == "tied" and combination.number("stages") > 1,
    **{feature: _plugin_has(axis, feature) for axis, feature in (
        ("precision", "a precision policy that searches for its loss scale"),
        ("precision", "a precision policy that measures"),
        ("scheduler", "a scheduler with splits_backward"),
        ("scheduler", "a scheduler that updates within the step"),
        ("model", "a model without splittable_backward"),
        ("model", "a model without tensor_parallel"),
        ("partitioner", "a partitioner without releases_parameters"),
        ("partitioner", "a partitioner that releases parameters"),
        ("partitioner", "a partitioner that cannot leave each rank its own gradient"),
        ("partitioner", "a partitioner that shards optimizer state"),
        ("optimizer", "an optimizer that needs sums"),
        ("optimizer", "an optimizer that trains at other weights than its masters"),
        ("optimizer", "an optimizer that does its own communication"),
        ("optimizer", "an optimizer that does its own communication and trains at other weights than its masters"))}}

RULES_OF_CONFIGS = (_indivisible_ranks, _indivisible_batch)
# What a single plugin refuses before values are laid out, and a key without effect; then what is refused for the values.
RULES_OF_PLUGINS = (_late_updates_and_other_policies, _weights_travel_in_one_way, _compressed_and_all_reduced,
                    _chunks_of_the_schedule, _more_chunks_than_layers, _micro_batches_of_the_schedule, _indivisible_shards)
RULES_OF_VALUES = (_parameters_stay_below_stage_3, _rows_of_a_tie)
