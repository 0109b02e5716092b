// What the table of a ds_config cannot say: what several keys decide together.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "config/keys.hpp"
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
  const bool chosen_here = source == nullptr || !origin.empty();
  if (!chosen_here) origin = source->origin + (fp16 ? " fp16.enabled" : " bf16.enabled");
  put("precision.plugin", precision_, chosen_here ? file_.place : source->place, origin);
}

void DeepSpeedReader::choose_partitioner() {
  const Node* node = given("zero_optimization.stage");
  if (const Count stage = count("zero_optimization.stage", "0")) stage_ = *stage;
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
  put("partitioner.plugin", partitioner_, place, origin);
  if (const Node* chosen = set("partitioner.plugin")) partitioner_ = chosen->text;
}

// Before its parameters are looked at, which no other optimizer has.
void DeepSpeedReader::refuse_optimizer() const {
  const Node* type = given("optimizer.type");
  if (type == nullptr || type->kind != NodeKind::Scalar) return;
  if (const Node* reason = without_case(table_.part("refused_optimizers"), type->text))
    throw UserError(type->place, "optimizer.type: " + shown(type->text) + " is refused: " + reason->text);
}

// The plugin or schedule that a block names by its `type`; where there is no block, what --set says.
std::string DeepSpeedReader::choose_type(const std::string& block, const std::string& names,
                                         const std::string& target) {
  const Node* chosen = set(target);
  if (given(block) == nullptr) return chosen == nullptr ? "" : chosen->text;
  const std::string path = block + ".type";
  const Node* type = given(path);
  const Node& known = table_.part(names);
  if (type == nullptr || type->kind != NodeKind::Scalar)
    throw UserError(given(block)->place, path + " must be given: a name, as in \"" + known.entries.front().key + "\"");
  const Node* name = without_case(known, type->text);
  if (name == nullptr)
    throw UserError(type->place,
                    path + ": " + shown(type->text) + " is unknown; " + suggestion(type->text, keys_of(known)));
  put(target, name->text, type->place, type->origin + " " + path);
  return block == "optimizer" && chosen != nullptr ? chosen->text
                                                   : name->text;  // the file has the schedule's parameters
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
  if (name == "pipeline") return pipeline(leaf), true;
  if (name == "adam_w_mode") {
    const Node* decay = given("optimizer.params.weight_decay");
    OptionSpec number;
    number.type = "number";
    const bool none = decay == nullptr || is_auto(*decay) ||
                      std::get<double>(typed_option(*decay, number, "optimizer.params.weight_decay")) == 0;
    if (leaf.value->text != "false" || !none) return false;
    return line(leaf, "without weight decay both modes are the same"), true;
  }
  if (name == "csv_monitor") return csv_monitor(leaf), true;
  throw Bug("keys.yaml names an unknown rule " + name);
}

// One folder of ours from three keys.
void DeepSpeedReader::csv_monitor(const Leaf& leaf) {
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
  line(leaf, put_from(leaf, "metrics.csv", scalar_node(folder)));
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

void DeepSpeedReader::pipeline(const Leaf& leaf) {
  if (leaf.path == "pipeline.enabled")
    return line(leaf, is_pipelined() ? "parallel.pipeline = " + std::to_string(stages()) : "no pipeline");
  if (!is_pipelined()) {
    if (!is_auto(*leaf.value)) typed(leaf);
    return line(leaf, "the pipeline is not enabled: nothing to do");
  }
  if (leaf.path == "pipeline.stages") {
    std::string text = put_from(leaf, "parallel.pipeline", scalar_node(std::to_string(stages())));
    if (stages() > 1 && given("pipeline.schedule") == nullptr)
      text += ", " + put_from(leaf, "scheduler.plugin", scalar_node(text_at(table_.part("pipeline"), "schedule")));
    return line(leaf, text);
  }
  if (leaf.path == "pipeline.schedule") return line(leaf, put_from(leaf, "scheduler.plugin", scalar_node(typed(leaf))));
  const Count samples = count("pipeline.micro_batch_size");
  if (leaf.path == "pipeline.micro_batch_size")
    return line(leaf,
                samples ? "train.micro_batch = " + std::to_string(*samples) : "as train_micro_batch_size_per_gpu");
  if (is_auto(*leaf.value)) return line(leaf, "as micro_batch_size");
  const Count own = samples ? samples : count("train_micro_batch_size_per_gpu");
  if (own && count(leaf.path) == own) return line(leaf, "as micro_batch_size");
  refuse(leaf, text_at(*leaf.row, "refuse"));
}

// train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps: what is known is handed on, and
// resolve derives or compares the rest (batch.hpp). A batch of which nothing but "auto" is known is Hugging Face's.
void DeepSpeedReader::batch() {
  const Leaf* automatic = nullptr;  // the key that asks for it
  for (const Leaf& leaf : leaves_) {
    const bool micro = leaf.path == "train_micro_batch_size_per_gpu";
    if (!is_auto(*leaf.value) || (!micro && leaf.path != "train_batch_size")) continue;
    if (automatic == nullptr || micro) automatic = &leaf;
  }
  const Count total = count("train_batch_size");
  Count own = count("train_micro_batch_size_per_gpu"),
        samples = is_pipelined() ? count("pipeline.micro_batch_size") : std::nullopt;
  const bool known = own || total || set("train.micro_batch") != nullptr || set("train.global_batch") != nullptr;
  if (known) automatic = nullptr;
  if (!known && automatic == nullptr && !samples)
    throw UserError(file_.place,
                    "no batch size in this ds_config; give train_batch_size or train_micro_batch_size_per_gpu "
                    "(\"auto\" is " +
                        table_.part("automatic_batch").text + " samples a device), or --set train.micro_batch=N");
  if (automatic != nullptr) {
    own = std::stoll(table_.part("automatic_batch").text);
    if (!samples && set("train.accumulation") == nullptr) {
      report.automatic_batch = *own;
      report.automatic_batch_place = automatic->value->place;
      samples = answers_.micro_batch.value_or(*own);
    }
  }
  hand_on("train_micro_batch_size_per_gpu", "train.micro_batch", samples ? samples : own, automatic);
  hand_on("gradient_accumulation_steps", "train.accumulation", micro_batches(samples, own, total), automatic);
  hand_on("train_batch_size", "train.global_batch", total, automatic);
}

// How many micro-batches a step has. Where the micro-batch is not DeepSpeed's, `samples`, they are not DeepSpeed's.
DeepSpeedReader::Count DeepSpeedReader::micro_batches(Count samples, Count micro, Count total) const {
  const Count accumulation = count("gradient_accumulation_steps");
  if (!samples) return accumulation;
  if (!micro || (!accumulation && total)) return total ? std::nullopt : accumulation;
  std::int64_t all = 0;
  if (__builtin_mul_overflow(*micro, accumulation.value_or(1), &all))
    throw UserError(given("gradient_accumulation_steps")->place,
                    "gradient_accumulation_steps: " + std::to_string(*accumulation) + " x " + std::to_string(*micro) +
                        " samples is more than a 64-bit number holds");
  if (all % *samples != 0)
    throw UserError(given("pipeline.micro_batch_size")->place,
                    "pipeline.micro_batch_size: " + std::to_string(*samples) +
                        " does not divide train_micro_batch_size_per_gpu " + std::to_string(*micro) +
                        " x gradient_accumulation_steps " + std::to_string(accumulation.value_or(1)) +
                        "; give a divisor, or \"auto\"");
  return all / *samples;
}

// `automatic`: the key whose "auto" is a whole batch; its line says what that is.
void DeepSpeedReader::hand_on(const std::string& path, const std::string& target, Count value, const Leaf* automatic) {
  const Node* node = given(path);
  const bool silent = node == nullptr || is_auto(*node);  // so another key gave the value
  std::string text = target + " is derived";
  if (const Node* chosen = set(target)) text = target + " = " + spelled(*chosen) + ", as --set says";
  if (value) {
    const Node* pipeline = given("pipeline.micro_batch_size");
    const Node& source = !silent                ? *node
                         : automatic != nullptr ? *automatic->value
                         : pipeline != nullptr  ? *pipeline
                                                : *node;
    text = put(target, std::to_string(*value), source.place,
               source.origin + " " + (silent && automatic != nullptr ? automatic->path : path));
  }
  if (node == nullptr) return;
  const bool asks = automatic != nullptr && automatic->path == path;
  std::string more =
      "; \"auto\" is " + table_.part("automatic_batch").text + " samples a device, Hugging Face's default";
  if (report.automatic_batch != 0)
    more += answers_.micro_batch
                ? "; the micro-batch is " + answers_.micro_batch_origin
                : ", here in one micro-batch; a run of this file makes smaller ones where memory_budget asks for it";
  const bool settled = value || set(target) != nullptr || asks;
  report.lines.push_back(
      {node->origin, path, spelled(*node), text + (asks ? more : ""), node->place.line, settled ? "" : target});
}

}  // namespace strata::config
