// Rules: what several keys decide together.
#include <cctype>
#include <filesystem>

#include "tools/deepspeed/deepspeed_table.hpp"
#include "tools/deepspeed/deepspeed_translation.hpp"

namespace strata::deepspeed {

bool DeepSpeedTranslation::rule(const DeepSpeedKey& key, const std::string& name) {
  if (name == "batch") return true;  // all three at once: batch()
  if (name == "pipeline") return pipeline(key), true;
  if (name == "csv_monitor") return csv_monitor(key), true;
  if (name != "adam_w_mode") throw Bug("keys.yaml names an unknown rule {}", name);
  if (optimizer_type() != "adamw" || typed(key) != "false") return false;
  return line(key, "the weight decay of AdamW is always decoupled, as in DeepSpeed"), true;
}

std::string DeepSpeedTranslation::optimizer_type() const {
  std::string type = file_.value<std::string>("optimizer.type").value_or("");
  for (char& letter : type) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return type;
}

void DeepSpeedTranslation::csv_monitor(const DeepSpeedKey& key) {
  const auto text = [&](const std::string& path) {
    return file_.value<std::string>(path).value_or(text_at(*deepspeed_table("keys").get(path), "default"));
  };
  if (!config::is_auto(*key.value)) typed(key);
  if (!file_.value<bool>("csv_monitor.enabled").value_or(false))
    return line(key, "csv_monitor is not enabled: nothing to do");
  if (key.path != "csv_monitor.enabled") return line(key, "part of metrics.csv");
  const std::filesystem::path folder = text("csv_monitor.output_path");
  line(key, put_from(key, "metrics.csv", scalar_node((folder / text("csv_monitor.job_name")).string())));
}

std::int64_t DeepSpeedTranslation::stages() const {
  return count("pipeline.stages").value_or(1);
}

bool DeepSpeedTranslation::is_pipelined() const {
  if (file_.is_automatic("pipeline.enabled"))
    throw UserError(file_.given("pipeline.enabled")->place,
                    "pipeline.enabled: \"auto\" is not supported; give true or false, or leave it out");
  if (file_.given("pipeline.enabled") == nullptr) return stages() > 1;
  return *file_.value<bool>("pipeline.enabled");
}

void DeepSpeedTranslation::pipeline(const DeepSpeedKey& key) {
  if (key.path == "pipeline.enabled")
    return line(key, is_pipelined() ? "parallel.pipeline = " + std::to_string(stages()) : "no pipeline");
  if (!is_pipelined()) {
    if (!config::is_auto(*key.value)) typed(key);
    return line(key, "the pipeline is not enabled: nothing to do");
  }
  if (key.path == "pipeline.stages") {
    std::string text = put_from(key, "parallel.pipeline", scalar_node(std::to_string(stages())));
    if (stages() > 1 && file_.given("pipeline.schedule") == nullptr)
      text += ", " + put_from(key, "scheduler.plugin", scalar_node("1f1b"));
    return line(key, text);
  }
  if (key.path == "pipeline.schedule") return line(key, put_from(key, "scheduler.plugin", scalar_node(typed(key))));
  const Count samples = count("pipeline.micro_batch_size");
  if (key.path == "pipeline.micro_batch_size")
    return line(key, samples ? "train.micro_batch = " + std::to_string(*samples) : "as train_micro_batch_size_per_gpu");
  const Count own = samples ? samples : count("train_micro_batch_size_per_gpu");
  if (config::is_auto(*key.value) || (own && count(key.path) == own)) return line(key, "as micro_batch_size");
  refuse(key, text_at(*key.row, "refuse"));
}

void DeepSpeedTranslation::batch() {
  const std::string all = deepspeed_table("automatic_batch").text;
  const Count total = count("train_batch_size");
  Count own = count("train_micro_batch_size_per_gpu"),
        samples = is_pipelined() ? count("pipeline.micro_batch_size") : std::nullopt;
  std::string automatic;  // the key whose "auto" is a whole batch
  if (!own && !total && set("train.micro_batch") == nullptr && set("train.global_batch") == nullptr) {
    for (const char* path : {"train_batch_size", "train_micro_batch_size_per_gpu"})
      if (file_.is_automatic(path)) automatic = path;
    if (automatic.empty() && !samples)
      throw UserError(file_.root().place,
                      "no batch size in this ds_config; give train_batch_size or train_micro_batch_size_per_gpu "
                      "(\"auto\" is {} samples per device), or --set train.micro_batch=N",
                      all);
  }
  if (!automatic.empty()) {
    own = std::stoll(all);
    if (!samples && set("train.accumulation") == nullptr) {
      report.automatic_batch = *own;
      report.automatic_batch_place = file_.given(automatic)->place;
      samples = answers_.micro_batch.value_or(*own);
    }
  }
  const Count accumulation = micro_batches(samples, own, total);
  hand_on("train_micro_batch_size_per_gpu", "train.micro_batch", samples ? samples : own, automatic);
  hand_on("gradient_accumulation_steps", "train.accumulation", accumulation, automatic);
  hand_on("train_batch_size", "train.global_batch", total, automatic);
}

Count DeepSpeedTranslation::micro_batches(Count samples, Count micro, Count total) const {
  const Count accumulation = count("gradient_accumulation_steps");
  if (!samples) return accumulation;
  if (!micro || (!accumulation && total)) return total ? std::nullopt : accumulation;
  const std::int64_t times = accumulation.value_or(1);
  std::int64_t all = 0;
  if (__builtin_mul_overflow(*micro, times, &all))
    throw UserError(file_.given("gradient_accumulation_steps")->place,
                    "gradient_accumulation_steps: {} x {} samples is more than a 64-bit number holds", times, *micro);
  if (all % *samples != 0)
    throw UserError(file_.given("pipeline.micro_batch_size")->place,
                    "pipeline.micro_batch_size: {} does not divide train_micro_batch_size_per_gpu {} x "
                    "gradient_accumulation_steps {}; give a divisor, or \"auto\"",
                    *samples, *micro, times);
  return all / *samples;
}

void DeepSpeedTranslation::hand_on(const std::string& path, const std::string& target, Count value,
                                   const std::string& automatic) {
  const config::Node *node = file_.given(path), *chosen = set(target);
  std::string text = chosen == nullptr ? target + " is derived" : target + " = " + spelled(*chosen) + ", by --set";
  if (value) {
    const bool elsewhere = node == nullptr || config::is_auto(*node);  // another key gave the value
    const std::string source = !elsewhere ? path : !automatic.empty() ? automatic : "pipeline.micro_batch_size";
    const config::Node& from = *file_.given(source);
    text = put(target, scalar_node(std::to_string(*value)), from.place,
               from.origin + " " + (elsewhere && automatic.empty() ? path : source));
  }
  if (node == nullptr) return;
  const bool asks = automatic == path;
  if (asks)
    text += "; \"auto\" is " + deepspeed_table("automatic_batch").text + " samples per device, Hugging Face's default";
  if (asks && report.automatic_batch != 0)
    text += answers_.micro_batch
                ? "; the micro-batch is " + answers_.micro_batch_origin
                : ", in one micro-batch; a run of this file uses smaller ones if memory_budget requires it";
  const bool settled = value || chosen != nullptr || asks;
  line({path, node->place, node, nullptr}, text, settled ? "" : target);
}

}  // namespace strata::deepspeed
