#include "config/engine_schema.hpp"

#include <algorithm>

namespace strata::config {
namespace {

EngineKey key(std::string path, std::string type, std::string documentation, std::string unit = "",
              std::string minimum = "", std::string maximum = "") {
  OptionSpec option;
  option.name = std::move(path);
  option.type = std::move(type);
  option.documentation = std::move(documentation);
  option.unit = std::move(unit);
  option.minimum = std::move(minimum);
  option.maximum = std::move(maximum);
  return {option, false};
}

EngineKey derived(EngineKey key) {
  key.automatic = true;
  return key;
}

EngineKey choice(std::string path, std::vector<std::string> choices, std::string documentation) {
  EngineKey made = key(std::move(path), "choice", std::move(documentation));
  made.option.choices = std::move(choices);
  return made;
}

std::vector<EngineKey> make_keys() {
  return {
      key("plugin_path", "text", "folders with plugins, separated by `:`, searched before all others"),
      key("automatic.device", "rule", "what `device: auto` means"),
      key("automatic.communicator", "rule", "what `communicator: {plugin: auto}` means"),
      key("model.init", "text", "a folder with initial weights; empty: random ones from train.seed"),
      key("model.seq_len", "integer", "tokens per sample", "tokens", "1", "1e9"),
      key("data.path", "text", "the token file; a pattern of several, or a prefix, where the data plugin takes one"),
      choice("data.order", {"sequential", "shuffled", "own"},
             "the order of the samples; shuffled: by train.seed; own: the data plugin's, if it has one"),
      key("validation.path", "text", "a token file whose loss is measured during training; empty: none"),
      key("validation.every", "integer", "steps from one validation to the next; 0: at the end only", "steps", "0",
          "1e12"),
      derived(key("validation.samples", "integer", "the most samples that are taken, from the first on; auto: all",
                  "samples", "1", "1e15")),
      key("train.steps", "integer", "optimizer steps", "steps", "1", "1e12"),
      derived(key("train.micro_batch", "integer", "samples in one forward pass of one rank", "samples", "1", "1e9")),
      derived(key("train.accumulation", "integer", "micro-batches per optimizer step", "micro-batches", "1", "1e9")),
      derived(
          key("train.global_batch", "integer", "samples per optimizer step over all ranks", "samples", "1", "1e12")),
      key("train.clip", "number", "the largest norm of the gradient; 0: no clipping", "", "0"),
      key("train.seed", "integer", "decides initial weights, dropout and sample order", "", "0"),
      key("train.log_every", "integer", "steps between two printed lines", "steps", "1"),
      key("learning_rate.base", "number", "the learning rate that the schedule starts from", "", "0"),
      key("learning_rate.warmup", "integer", "first steps, over which the rate rises linearly to the schedule's first",
          "steps", "0", "1e12"),
      key("parameters", "parameter_rules", "rules by the names of parameters: trainable, learning rate, weight decay"),
      key("compare", "variants",
          "what `strata compare` trains in turns: settings, one text a variant, the first the baseline"),
      key("parallel.pipeline", "integer", "pipeline stages", "ranks", "1", "1e6"),
      key("parallel.tensor", "integer", "ranks that share each layer's tensors", "ranks", "1", "1e6"),
      derived(key("parallel.data", "integer", "data-parallel ranks", "ranks", "1", "1e6")),
      key("activations.checkpoint", "layers", "layers whose activations are computed again in backward"),
      key("communicator.timeout_s", "number",
          "how long no rank may have got on before the run ends; a rank that computes gets on", "seconds", "0.1",
          "1e6"),
      key("checkpoint.path", "text", "a folder for checkpoints, the same for all ranks; empty: none are saved"),
      key("checkpoint.every", "integer",
          "steps between two checkpoints; 0: only at the end and when the run is stopped", "steps", "0"),
      key("checkpoint.keep", "integer", "checkpoints to keep, the newest; 0: all", "checkpoints", "0"),
      key("export", "text", "a folder for the final weights; empty: none are written"),
      key("metrics.csv", "text",
          "a folder for one CSV file a figure, with the names of DeepSpeed's csv_monitor; empty: none are written"),
      derived(
          key("memory_budget", "size", "memory that one rank may take; auto: what its device offers", "bytes", "1MiB")),
  };
}

// The component after `path.` in `full`; empty when `full` is not below it.
std::string_view child_of(std::string_view path, std::string_view full) {
  if (!path.empty()) {
    if (full.size() <= path.size() || full.substr(0, path.size()) != path || full[path.size()] != '.') return {};
    full.remove_prefix(path.size() + 1);
  }
  return full.substr(0, full.find('.'));
}

}  // namespace

const std::vector<EngineKey>& engine_keys() {
  static const std::vector<EngineKey> keys = make_keys();
  return keys;
}

const EngineKey* engine_key(std::string_view path) {
  const std::vector<EngineKey>& keys = engine_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const EngineKey& one) { return one.option.name == path; });
  return found == keys.end() ? nullptr : &*found;
}

bool only_names_files(std::string_view path) {
  return path == "model.init" || path == "validation.path" || path == "export" || path == "metrics.csv";
}

const std::vector<PluginSlot>& plugin_slots() {
  static const std::vector<PluginSlot> slots{
      {"device", "device"},
      {"communicator", "communicator"},
      {"model", "model"},
      {"partitioner", "partitioner"},
      {"precision", "precision"},
      {"scheduler", "scheduler"},
      {"optimizer", "optimizer"},
      {"offload.optimizer", "offload", true},
      {"learning_rate", "learning_rate"},
      {"data", "data"},
      {"validation", "data"},
  };
  return slots;
}

const PluginSlot* plugin_slot(std::string_view path) {
  const std::vector<PluginSlot>& slots = plugin_slots();
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const PluginSlot& slot) { return slot.path == path; });
  return found == slots.end() ? nullptr : &*found;
}

std::vector<std::string> known_children(std::string_view path) {
  std::vector<std::string> children;
  const auto add = [&](std::string_view child) {
    if (!child.empty() && std::find(children.begin(), children.end(), child) == children.end())
      children.emplace_back(child);
  };
  if (plugin_slot(path) != nullptr) add("plugin");
  for (const PluginSlot& slot : plugin_slots()) add(child_of(path, slot.path));
  for (const EngineKey& one : engine_keys()) add(child_of(path, one.option.name));
  return children;
}

}  // namespace strata::config
