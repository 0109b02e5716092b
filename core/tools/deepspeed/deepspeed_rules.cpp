// What the table of a ds_config cannot say: what is chosen by several keys together.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "config/engine_schema.hpp"
#include "config/schema.hpp"
#include "text/nearest.hpp"
#include "tools/deepspeed/deepspeed_reader.hpp"

namespace strata::config {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

const Node* without_case(const Node& names, const std::string& name) {
  for (const Entry& entry : names.entries)
    if (lower(entry.key) == lower(name)) return &entry.value;
  return nullptr;
}

std::vector<std::string> keys_of(const Node& map) {
  std::vector<std::string> names;
  for (const Entry& entry : map.entries) names.push_back(entry.key);
  return names;
}

}  // namespace

bool DeepSpeedReader::is_automatic(const std::string& path) const {
  const Node* node = given(path);
  return node != nullptr && is_auto(*node);
}

std::optional<std::int64_t> DeepSpeedReader::count(const std::string& path, const char* minimum) const {
  const Node* node = given(path);
  if (node == nullptr || is_auto(*node)) return {};
  OptionSpec option;
  option.type = "integer";
  option.minimum = minimum;
  return std::get<std::int64_t>(typed_option(*node, option, path));
}

void DeepSpeedReader::choose() {
  choose_precision();
  choose_partitioner();
  choose_optimizer();
  choose_schedule();
}

void DeepSpeedReader::choose_precision() {
  const Node& names = table_.part("precisions");
  OptionSpec boolean;
  boolean.type = "boolean";
  const auto is_on = [&](const char* path) {
    const Node* node = given(path);
    return node != nullptr && !is_auto(*node) && std::get<bool>(typed_option(*node, boolean, path));
  };
  const bool fp16 = is_on("fp16.enabled"), bf16 = is_on("bf16.enabled");
  const Node* source = given(fp16 ? "fp16.enabled" : "bf16.enabled");
  if (fp16 && bf16)
    throw UserError(source->place,
                    "fp16.enabled and bf16.enabled are both true, and a run has one of them; set one to false");
  precision_ = text_at(names, fp16 ? "fp16" : bf16 ? "bf16" : "none");
  std::string origin = fp16 || bf16 ? "" : "neither fp16 nor bf16 is enabled";
  const bool automatic = !fp16 && !bf16 && (is_automatic("fp16.enabled") || is_automatic("bf16.enabled"));
  if (automatic) origin = "\"auto\" is off, as Hugging Face's --fp16 and --bf16 are";
  const Node* chosen = table_.part("auto_bf16").get(device_);
  if (automatic && is_automatic("bf16.enabled") && chosen != nullptr) {
    precision_ = text_at(names, chosen->text);
    origin = "\"auto\" is " + chosen->text + " on device " + device_;
  }
  if (const Node* dtype = set("precision.plugin")) precision_ = dtype->text;
  if (source == nullptr || !origin.empty())
    put("precision.plugin", scalar_node(precision_, file_.place, ""), file_.place, origin);
  else
    put("precision.plugin", scalar_node(precision_, source->place, ""), source->place,
        source->origin + (fp16 ? " fp16.enabled" : " bf16.enabled"));
}

void DeepSpeedReader::choose_partitioner() {
  const Node* node = given("zero_optimization.stage");
  if (const std::optional<std::int64_t> stage = count("zero_optimization.stage", "0")) stage_ = *stage;
  const Node& names = table_.part("stages");
  if (names.get(std::to_string(stage_)) == nullptr)
    throw UserError(node->place,
                    "zero_optimization.stage: " + std::to_string(stage_) + ", and there are the stages 0, 1, 2 and 3");
  partitioner_ = text_at(names, std::to_string(stage_));
  std::string origin =
      node == nullptr ? "DeepSpeed's default of zero_optimization.stage" : node->origin + " zero_optimization.stage";
  std::string chosen_by;
  for (const Leaf& leaf : leaves_) {
    const Node* chooses = leaf.row->get("chooses");
    const Node* notes = leaf.row->get("notes");
    if (chooses == nullptr || leaf.value->kind != NodeKind::Scalar || is_auto(*leaf.value)) continue;
    if (notes->get(typed(leaf)) != nullptr || text_at(*leaf.row, "at_stage") != std::to_string(stage_)) continue;
    if (!chosen_by.empty())
      throw UserError(leaf.place, leaf.path + " and " + chosen_by + " both choose groups of ranks; keep one");
    chosen_by = leaf.path;
    partitioner_ = text_at(*chooses, "partitioner");
    origin = leaf.value->origin + " " + leaf.path;
  }
  const Place& place = node == nullptr ? file_.place : node->place;
  put("partitioner.plugin", scalar_node(partitioner_, place, ""), place, origin);
  if (const Node* chosen = set("partitioner.plugin")) partitioner_ = chosen->text;
}

// Before its parameters are looked at, which no other optimizer has.
void DeepSpeedReader::refuse_optimizer() const {
  const Node* type = given("optimizer.type");
  if (type == nullptr || type->kind != NodeKind::Scalar) return;
  if (const Node* reason = without_case(table_.part("refused_optimizers"), type->text))
    throw UserError(type->place, "optimizer.type: " + shown(type->text) + " is refused: " + reason->text);
}

void DeepSpeedReader::choose_optimizer() {
  if (const Node* chosen = set("optimizer.plugin")) optimizer_ = chosen->text;
  if (given("optimizer") == nullptr) return;
  const Node* type = given("optimizer.type");
  if (type == nullptr || type->kind != NodeKind::Scalar)
    throw UserError(given("optimizer")->place,
                    "optimizer.type must be given: the name of an optimizer, as in \"AdamW\"");
  const Node* name = without_case(table_.part("optimizers"), type->text);
  if (name != nullptr) {
    put("optimizer.plugin", scalar_node(name->text, type->place, ""), type->place, type->origin + " optimizer.type");
    if (optimizer_.empty()) optimizer_ = name->text;
    return;
  }
  throw UserError(type->place, "optimizer.type: " + shown(type->text) + " is unknown; " +
                                   suggestion(type->text, {"Adam", "AdamW", "SGD", "FusedAdam", "CPUAdam"}));
}

void DeepSpeedReader::choose_schedule() {
  if (const Node* chosen = set("learning_rate.plugin")) schedule_ = chosen->text;
  if (given("scheduler") == nullptr) return;
  const Node* type = given("scheduler.type");
  if (type == nullptr || type->kind != NodeKind::Scalar)
    throw UserError(given("scheduler")->place,
                    "scheduler.type must be given: the name of a schedule, as in \"WarmupLR\"");
  const Node& names = table_.part("schedules");
  const Node* name = without_case(names, type->text);
  if (name == nullptr)
    throw UserError(type->place,
                    "scheduler.type: " + shown(type->text) + " is unknown; " + suggestion(type->text, keys_of(names)));
  put("learning_rate.plugin", scalar_node(name->text, type->place, ""), type->place, type->origin + " scheduler.type");
  schedule_ = name->text;  // whose parameters the file has
}

// Where the schedule cycles the momentum, DeepSpeed sets both of Adam's betas, the second to 0.99, and leaves
// optimizers without betas alone.
void DeepSpeedReader::choose_momentum() {
  const std::string cycles = "learning_rate." + schedule_ + ".cycle_momentum";
  const auto chosen = [&](const std::string& path) { return set(path) == nullptr ? find(tree, path) : set(path); };
  const Node *cycled = chosen(cycles), *optimizer = chosen("optimizer.plugin");
  if (cycled == nullptr || cycled->text != "true" || optimizer == nullptr) return;
  const std::string betas = "optimizer." + optimizer->text + ".betas";
  const bool has_betas = exists(betas);
  const std::string text =
      has_betas ? put(betas, parse_value("[0.9, 0.99]", ""), cycled->place, "DeepSpeed's OneCycle")
                : put(cycles, scalar_node("false", cycled->place, ""), cycled->place, "DeepSpeed's OneCycle");
  report.lines.push_back({has_betas ? "DeepSpeed's OneCycle cycles the first of Adam's betas and sets the second"
                                    : "DeepSpeed's OneCycle cycles no momentum but Adam's",
                          "", "", text});
}

bool DeepSpeedReader::rule(const Leaf& leaf, const std::string& name) {
  const auto chosen = [&](const std::string& path) {
    const Node* ours = set(path) == nullptr ? find(tree, path) : set(path);
    line(leaf, path + " = " + spelled(*ours) + (set(path) == nullptr ? "" : ", as --set says"));
    return true;
  };
  if (name == "compat") return line(leaf, "the defaults are DeepSpeed " + compat_ + "'s"), true;
  if (name == "precision") {
    chosen("precision.plugin");
    const Node* ours = set("precision.plugin") == nullptr ? find(tree, "precision.plugin") : nullptr;
    if (is_auto(*leaf.value) && ours != nullptr) report.lines.back().text += ": " + ours->origin;
    return true;
  }
  if (name == "stage") return chosen("partitioner.plugin");
  if (name == "optimizer") return chosen("optimizer.plugin");
  if (name == "scheduler") return chosen("learning_rate.plugin");
  if (name == "batch") return true;  // all three at once: batch()
  if (name == "pipeline") return pipeline_leaf(leaf), true;
  if (name == "adam_w_mode") {
    const Node* decay = given("optimizer.params.weight_decay");
    OptionSpec number;
    number.type = "number";
    const bool none = decay == nullptr || is_auto(*decay) ||
                      std::get<double>(typed_option(*decay, number, "optimizer.params.weight_decay")) == 0;
    if (leaf.value->text != "false" || !none) return false;
    return line(leaf, "without weight decay both modes are the same"), true;
  }
  if (name == "csv_monitor") return csv_monitor_leaf(leaf), true;
  throw Bug("configs/deepspeed.yaml names an unknown rule " + name);
}

// One folder of ours from three keys.
void DeepSpeedReader::csv_monitor_leaf(const Leaf& leaf) {
  const auto value = [&](const char* key) {
    const std::string path = std::string("csv_monitor.") + key;
    const Node* node = given(path);
    return node == nullptr || is_auto(*node) ? text_at(*table_.key(path), "default") : node->text;
  };
  if (!is_auto(*leaf.value)) typed(leaf);
  const Node* enabled = given("csv_monitor.enabled");
  const bool on = enabled != nullptr && enabled->text == "true";
  if (!on) return line(leaf, "csv_monitor is not enabled: nothing to do");
  if (leaf.path != "csv_monitor.enabled") return line(leaf, "part of metrics.csv");
  const std::string folder = (std::filesystem::path(value("output_path")) / value("job_name")).string();
  line(leaf, put_from(leaf, "metrics.csv", scalar_node(folder, leaf.value->place, "")));
}

std::int64_t DeepSpeedReader::stages() const {
  return count("pipeline.stages").value_or(1);
}

bool DeepSpeedReader::is_pipelined() const {
  OptionSpec boolean;
  boolean.type = "boolean";
  const Node* enabled = given("pipeline.enabled");
  if (enabled == nullptr) return stages() > 1;
  if (is_auto(*enabled))
    throw UserError(enabled->place, "pipeline.enabled: \"auto\" has no rule here; give true or false, or leave it out");
  return std::get<bool>(typed_option(*enabled, boolean, "pipeline.enabled"));
}

void DeepSpeedReader::pipeline_leaf(const Leaf& leaf) {
  if (leaf.path == "pipeline.enabled")
    return line(leaf, is_pipelined() ? "parallel.pipeline = " + std::to_string(stages()) : "no pipeline");
  if (!is_pipelined()) {
    if (!is_auto(*leaf.value)) typed(leaf);
    return line(leaf, "the pipeline is not enabled: nothing to do");
  }
  if (leaf.path == "pipeline.stages") {
    std::string text =
        put_from(leaf, "parallel.pipeline", scalar_node(std::to_string(stages()), leaf.value->place, ""));
    if (stages() > 1 && given("pipeline.schedule") == nullptr)
      text += ", " + put_from(leaf, "scheduler.plugin",
                              scalar_node(text_at(table_.part("pipeline"), "schedule"), leaf.value->place, ""));
    return line(leaf, text);
  }
  if (leaf.path == "pipeline.schedule")
    return line(leaf, put_from(leaf, "scheduler.plugin", scalar_node(typed(leaf), leaf.value->place, "")));
  const std::optional<std::int64_t> samples = count("pipeline.micro_batch_size");
  if (leaf.path == "pipeline.micro_batch_size")
    return line(leaf,
                samples ? "train.micro_batch = " + std::to_string(*samples) : "as train_micro_batch_size_per_gpu");
  if (is_auto(*leaf.value)) return line(leaf, "as micro_batch_size");
  const std::optional<std::int64_t> own = samples ? samples : count("train_micro_batch_size_per_gpu");
  if (own && count(leaf.path) == own) return line(leaf, "as micro_batch_size");
  refuse(leaf, text_at(*leaf.row, "refuse"));
}

}  // namespace strata::config
