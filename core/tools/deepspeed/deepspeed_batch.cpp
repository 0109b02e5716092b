// The batch of a ds_config, of three keys and a pipeline's.
#include "tools/deepspeed/deepspeed_reader.hpp"

namespace strata::config {

// train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps: what is known is handed on, and
// resolve derives or compares the rest (batch.hpp). A batch of which nothing but "auto" is known is Hugging Face's.
void DeepSpeedReader::batch() {
  const Leaf* automatic = nullptr;  // the key that asks for it
  for (const Leaf& leaf : leaves_) {
    const bool micro = leaf.path == "train_micro_batch_size_per_gpu";
    if (!is_auto(*leaf.value) || (!micro && leaf.path != "train_batch_size")) continue;
    if (automatic == nullptr || micro) automatic = &leaf;
  }
  const std::optional<std::int64_t> total = count("train_batch_size");
  std::optional<std::int64_t> own = count("train_micro_batch_size_per_gpu"),
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
std::optional<std::int64_t> DeepSpeedReader::micro_batches(std::optional<std::int64_t> samples,
                                                           std::optional<std::int64_t> micro,
                                                           std::optional<std::int64_t> total) const {
  const std::optional<std::int64_t> accumulation = count("gradient_accumulation_steps");
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
void DeepSpeedReader::hand_on(const std::string& path, const std::string& target, std::optional<std::int64_t> value,
                              const Leaf* automatic) {
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
    text = put(target, scalar_node(std::to_string(*value), source.place, ""), source.place,
               source.origin + " " + (silent && automatic != nullptr ? automatic->path : path));
  }
  if (node == nullptr) return;
  const bool asks = automatic != nullptr && automatic->path == path;
  const bool settled = value || set(target) != nullptr || asks;
  report.lines.push_back({node->origin, path, spelled(*node), text + (asks ? automatic_batch_text() : ""),
                          node->place.line, settled ? "" : target});
}

std::string DeepSpeedReader::automatic_batch_text() const {
  const std::string text =
      "; \"auto\" is " + table_.part("automatic_batch").text + " samples a device, Hugging Face's default";
  if (report.automatic_batch == 0) return text;
  return text +
         (answers_.micro_batch
              ? "; the micro-batch is " + answers_.micro_batch_origin
              : ", here in one micro-batch; a run of this file makes smaller ones where memory_budget asks for it");
}

}  // namespace strata::config
