#include "config/keys.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "config/run_config.hpp"

namespace strata::config {
namespace {

constexpr std::array<std::string_view, 4> own_types{"layers", "parameter_rules", "variants", "rule"};

const PluginChoice* pointer_to(const PluginChoice& choice) {
  return &choice;
}
const PluginChoice* pointer_to(const std::optional<PluginChoice>& choice) {
  return choice ? &*choice : nullptr;
}
#define CHOICE(field)                                                           \
  ChoiceField {                                                                 \
    [](RunConfig& run, PluginChoice choice) { run.field = std::move(choice); }, \
        [](const RunConfig& run) { return pointer_to(run.field); }              \
  }

// The rows of the lists in run_config.hpp, by the part of RunConfig that has the members.
#define ROW(type, field, path, ...) make_key(path, #type, __VA_ARGS__, STRATA_KEY_FIELD(type, field)),
#define MODEL_ROW(type, member, ...) ROW(type, model.member, __VA_ARGS__)
#define VALIDATION_ROW(type, member, ...) ROW(type, validation.member, __VA_ARGS__)
#define LEARNING_RATE_ROW(type, member, ...) ROW(type, learning_rate.member, __VA_ARGS__)
#define TRAIN_ROW(type, member, ...) ROW(type, train.member, __VA_ARGS__)
#define OFFLOAD_ROW(type, member, ...) ROW(type, offload.member, __VA_ARGS__)
#define LOCAL_ROW(type, member, ...) ROW(type, local.member, __VA_ARGS__)
#define COMMUNICATOR_ROW(type, member, ...) ROW(type, communicator.member, __VA_ARGS__)
#define CHECKPOINT_ROW(type, member, ...) ROW(type, checkpoint.member, __VA_ARGS__)

constexpr KeyField recomputed_layers{[](RunConfig& run, const OptionValue& value) {
                                       if (const auto* text = std::get_if<std::string>(&value))
                                         run.recompute = {*text == "all", {}};
                                       if (const auto* layers = std::get_if<std::vector<std::int64_t>>(&value))
                                         run.recompute = {false, *layers};
                                     },
                                     [](const RunConfig& run) {
                                       if (run.recompute.all) return OptionValue("all");
                                       return run.recompute.layers.empty() ? OptionValue("none")
                                                                           : OptionValue(run.recompute.layers);
                                     }};

// With documents: separate, a section has the token that ends a document.
template <auto data>
constexpr KeyField documents{
    nullptr, [](const RunConfig& run) { return OptionValue(data(run).document_end ? "separate" : "packed"); }};
template <auto data>
constexpr KeyField document_end{nullptr,
                                [](const RunConfig& run) { return OptionValue(data(run).document_end.value_or(0)); }};
constexpr auto trained = [](const RunConfig& run) -> const DataConfig& { return run.data; };
constexpr auto validated = [](const RunConfig& run) -> const DataConfig& { return run.validation.data; };

// A model with other options has other parameters, which resuming compares by themselves.
Key model_key() {
  Key key = plugin_key("model", "model", Affects::Samples, "model architecture to train", CHOICE(model.plugin));
  key.options = Affects::Numbers;
  key.required = true;
  return key;
}

// Sizes of the axes. resolve.cpp computes that of the data axis from the world size.
template <Axis axis>
constexpr KeyField axis_field{
    axis == Axis::Data
        ? nullptr
        : +[](RunConfig& run,
              const OptionValue&
                  value) { run.parallel.mesh.set(axis, static_cast<int>(std::get<std::int64_t>(value))); },
    [](const RunConfig& run) { return OptionValue(run.parallel.size(axis)); }};
constexpr auto axis_fields = []<std::size_t... axis>(std::index_sequence<axis...>) {
  return std::array<KeyField, axes.size()>{axis_field<axes[axis]>...};
}
(std::make_index_sequence<axes.size()>());

}  // namespace

std::string key_of(Axis axis) {
  return format("parallel.{}", name_of(axis));
}

namespace {

Key validation_plugin_key() {
  Key key = plugin_key("validation", "data", Affects::Nothing, "format of the validation file",
                       CHOICE(validation.data.plugin));
  key.option.default_text = "the value of data.plugin";
  return key;
}

std::vector<Key> make_keys() {
  std::vector<Key> all;
  const auto add = [&](const std::vector<Key>& more) { all.insert(all.end(), more.begin(), more.end()); };
  add({plugin_key("device", "device", Affects::Numbers, "device that holds and computes tensors", CHOICE(device)),
       model_key(), STRATA_MODEL_KEYS(MODEL_ROW)});
  add({plugin_key("data", "data", Affects::Samples, "format of the token file", CHOICE(data.plugin)),
       make_key("data.path", "text", required, "", "", same_content(Affects::Numbers),
                "the token file, or a pattern of several, such as `train_*.bin`; for megatron the PREFIX of its .bin "
                "and .idx files",
                STRATA_KEY_FIELD(text, data.path)),
       make_key("data.order", "text", "sequential", "one_of=" STRATA_DATA_ORDERS, "", Affects::Samples,
                "order of the samples. sequential: as in the file; shuffled: permuted by train.seed; own: defined by "
                "the data plugin, if it declares own_order",
                {[](RunConfig& run, const OptionValue& value) {
                   run.data.order = choice<DataOrder>(STRATA_DATA_ORDERS, std::get<std::string>(value));
                 },
                 [](const RunConfig& run) {
                   return OptionValue(choice_name(STRATA_DATA_ORDERS, static_cast<int>(run.data.order)));
                 }}),
       make_key("data.documents", "text", "packed", "one_of=packed|separate", "", Affects::Samples,
                "contents of a sample. packed: consecutive tokens of the file, across document boundaries; separate: "
                "tokens of one document only. A document longer than a sample is split, and its last sample is padded "
                "with targets that do not count in the loss",
                documents<trained>),
       make_key("data.document_end", "integer", automatic("none, which is sufficient for packed documents"),
                "min=0,max=4294967295", "", Affects::Samples,
                "token id that ends each document; required by data.documents: separate", document_end<trained>),
       make_key("validation.path", "text", "", "", "", same_content(Affects::Files),
                "token file for the validation loss; empty: no validation",
                STRATA_KEY_FIELD(text, validation.data.path)),
       validation_plugin_key(),
       make_key("validation.documents", "text", automatic("the value of data.documents"), "one_of=packed|separate", "",
                Affects::Nothing, "contents of a sample of the validation file; see data.documents",
                documents<validated>),
       make_key("validation.document_end", "integer", automatic("the value of data.document_end"),
                "min=0,max=4294967295", "", Affects::Nothing, "token id that ends each document of the validation file",
                document_end<validated>),
       STRATA_VALIDATION_KEYS(VALIDATION_ROW)});
  add({STRATA_TRAIN_KEYS(TRAIN_ROW)});
  add({plugin_key("learning_rate", "learning_rate", Affects::Numbers,
                  "learning rate schedule; some schedules also set the momentum", CHOICE(learning_rate.plugin)),
       make_key("learning_rate.base", "number", automatic("not set, for schedules that define their own rates"),
                "min=0", "", Affects::Numbers, "learning rate after the warm-up",
                {[](RunConfig& run, const OptionValue& value) { run.learning_rate.base = std::get<double>(value); },
                 [](const RunConfig& run) { return OptionValue(run.learning_rate.base.value_or(0.0)); }}),
       STRATA_LEARNING_RATE_KEYS(LEARNING_RATE_ROW)});
  for (const AxisInfo& axis : axis_table)
    add({make_key(key_of(axis.axis), "integer",
                  axis.axis == Axis::Data ? automatic("world size / product of the other axes") : Default("1"),
                  "min=1,max=1e6", "ranks", Affects::Numbers, format("number of {}, {}", axis.ranks, axis.share),
                  axis_fields[static_cast<std::size_t>(axis.axis)])});
  add({STRATA_PIPELINE_KEYS(ROW)});
  add({plugin_key("partitioner", "partitioner", Affects::Numbers,
                  "sharding of parameters, gradients and optimizer state over the data-parallel ranks",
                  CHOICE(partitioner)),
       plugin_key("precision", "precision", Affects::Numbers, "number formats and loss scaling", CHOICE(precision)),
       plugin_key("scheduler", "scheduler", Affects::Numbers,
                  "pipeline schedule: the order of forward and backward passes over the stages", CHOICE(scheduler)),
       plugin_key("optimizer", "optimizer", Affects::Numbers, "parameter update rule", CHOICE(optimizer)),
       make_key("step_policy", "text", "plain", "one_of=" STRATA_STEP_POLICIES, "", Affects::Numbers,
                "time at which a step's gradient updates the parameters. plain: at the end of the step. delayed: in "
                "the next step, after the last use of the parameter there, so updates overlap with the backward. N "
                "steps make N - 1 updates. speculative: bit-identical to plain, but the pipeline stages start the next "
                "step before the norm is known, and redo it if the norm leads to clipping or a skipped update. Keeps a "
                "second copy of master weights and optimizer state. local: groups of ranks train independently on "
                "their parts of the batch and average their weights every local.steps steps (local SGD, DiLoCo). "
                "Evaluations and exports use the last weights common to all groups",
                {[](RunConfig& run, const OptionValue& value) {
                   run.step_policy = choice<StepPolicy>(STRATA_STEP_POLICIES, std::get<std::string>(value));
                 },
                 [](const RunConfig& run) {
                   return OptionValue(choice_name(STRATA_STEP_POLICIES, static_cast<int>(run.step_policy)));
                 }}),
       STRATA_LOCAL_KEYS(LOCAL_ROW)
           make_key("parameters", "parameter_rules", "[]", "", "", Affects::Numbers,
                    "rules for parameters by name: trainable, learning rate, weight decay; later rules take precedence",
                    {nullptr, [](const RunConfig& run) { return OptionValue(run.parameters_text); }}),
       make_key("compare", "variants", "[]", "", "", Affects::Nothing,
                "variants for `strata compare`, each a text of KEY=VALUE settings; the first is the baseline"),
       make_key("activations.checkpoint", "layers", "none", "", "", Affects::Numbers,
                "layers with activation checkpointing, which keep only their input and recompute their activations in "
                "the backward",
                recomputed_layers),
       STRATA_ACTIVATION_KEYS(ROW)
           plugin_key("offload.parameters", "offload", Affects::Nothing,
                      "memory tier of a rank's parameter shards between their uses; none: device memory",
                      CHOICE(offload.parameters), true),
       plugin_key("offload.optimizer", "offload", Affects::Nothing,
                  "memory tier of optimizer state, master weights and gradients; none: device memory",
                  CHOICE(offload.optimizer), true),
       plugin_key("offload.activations", "offload", Affects::Nothing,
                  "memory tier of the inputs of recomputed layers between forward and backward; none: device memory",
                  CHOICE(offload.activations), true),
       plugin_key("offload.host", "offload", Affects::Nothing,
                  "host-memory tier available to offload.automatic; none: no such tier", CHOICE(offload.host), true),
       plugin_key("offload.disk", "offload", Affects::Nothing,
                  "disk tier available to offload.automatic; none: no such tier", CHOICE(offload.disk), true),
       STRATA_OFFLOAD_KEYS(OFFLOAD_ROW) plugin_key("communicator", "communicator", Affects::Nothing,
                                                   "transport of tensors between ranks", CHOICE(communicator.plugin)),
       STRATA_COMMUNICATOR_KEYS(COMMUNICATOR_ROW) STRATA_CHECKPOINT_KEYS(CHECKPOINT_ROW) STRATA_RUN_KEYS(ROW)
           make_key("automatic.device", "rule", "", "", "", Affects::Nothing,
                    "value of `device: auto`: the first device in the list that this machine can use"),
       make_key("automatic.offload.host", "rule", "", "", "", Affects::Nothing,
                "value of `offload.host: auto`, which is the default with offload.automatic"),
       make_key("automatic.communicator", "rule", "", "", "", Affects::Nothing,
                "value of `communicator: auto` for each device; in a list, the first communicator that can connect "
                "the run's ranks is used")});
  return all;
}

// The component after `path.` in `full`; empty when `full` is not below it.
std::string_view child_of(std::string_view path, std::string_view full) {
  if (!path.empty()) {
    if (full.size() <= path.size() || full.substr(0, path.size()) != path || full[path.size()] != '.') return {};
    full.remove_prefix(path.size() + 1);
  }
  return full.substr(0, full.find('.'));
}

// The key that `path` names or, for a plugin's option, the key that names the plugin.
const Key* key_or_plugin(std::string_view path) {
  if (const Key* key = find_key(path)) return key;
  for (const PluginSlot& slot : plugin_slots())
    if (!child_of(slot.path, path).empty()) return find_key(slot.path + ".plugin");
  return nullptr;
}

}  // namespace

Key make_key(std::string_view path, std::string_view type, Default value, std::string_view limits,
             std::string_view unit, Effect effect, std::string_view documentation, KeyField field) {
  Key key;
  const bool own_type = std::find(own_types.begin(), own_types.end(), type) != own_types.end();
  const bool has_value = !value.required && *value.automatic == '\0';
  const std::string problem = read_option_spec(path, type, value.text, limits, unit, documentation, key.option);
  if (!problem.empty() && has_value && !own_type) throw Bug(problem);
  key.required = value.required;
  key.automatic = value.automatic;
  key.effect = effect;
  key.field = field;
  return key;
}

Key plugin_key(const std::string& slot, const std::string& kind, Effect effect, const std::string& documentation,
               ChoiceField choice, bool optional) {
  Key key;
  key.option.name = slot + ".plugin";
  key.option.type = "plugin";
  key.option.documentation = documentation;
  key.effect = effect;
  key.kind = kind;
  key.optional = optional;
  key.options = effect.affects;
  key.choice = choice;
  return key;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = make_keys();
  return all;
}

const Key* find_key(std::string_view path) {
  const auto found = std::ranges::find_if(keys(), [&](const Key& one) { return one.option.name == path; });
  return found == keys().end() ? nullptr : &*found;
}

Effect effect_of(std::string_view path) {
  const Key* key = key_or_plugin(path);
  if (key == nullptr) return Affects::Numbers;  // of another version: the worst
  return key->option.name == path ? key->effect : Effect(key->options);
}

const std::vector<PluginSlot>& plugin_slots() {
  static const std::vector<PluginSlot> slots = [] {
    std::vector<PluginSlot> all;
    for (const Key& key : keys())
      if (!key.kind.empty())
        all.push_back({key.option.name.substr(0, key.option.name.rfind('.')), key.kind, key.optional});
    return all;
  }();
  return slots;
}

const PluginSlot* plugin_slot(std::string_view path) {
  const std::vector<PluginSlot>& slots = plugin_slots();
  const auto found = std::ranges::find_if(slots, [&](const PluginSlot& slot) { return slot.path == path; });
  return found == slots.end() ? nullptr : &*found;
}

std::vector<std::string> known_children(std::string_view path) {
  std::vector<std::string> children;
  for (const Key& one : keys()) {
    const std::string_view child = child_of(path, one.option.name);
    if (!child.empty() && std::ranges::find(children, child) == children.end()) children.emplace_back(child);
  }
  return children;
}

}  // namespace strata::config
