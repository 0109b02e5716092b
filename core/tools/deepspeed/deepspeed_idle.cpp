// Keys that DeepSpeed accepts and ignores because of others. Strata refuses options without effect, so they are left
// out, and their lines give the reason.
#include <cstdlib>

#include "tools/deepspeed/deepspeed_translation.hpp"

namespace strata::deepspeed {

std::string DeepSpeedTranslation::value_of(const std::string& target) const {
  const config::Node* const chosen = set(target) == nullptr ? config::find(tree, target) : set(target);
  return chosen == nullptr ? "" : chosen->text;
}

void DeepSpeedTranslation::leave_out(const std::string& target, const std::string& reason) {
  if (config::find(tree, target) == nullptr) return;
  std::string path = target;  // and then sections that it leaves empty
  for (std::size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
    config::Node& section = const_cast<config::Node&>(*config::find(tree, path.substr(0, dot)));
    section.remove(path.substr(dot + 1));
    if (!section.entries.empty()) break;
    path.erase(dot);
  }
  if (path.find('.') == std::string::npos) tree.remove(path);
  for (resolve::DialectLine& line : report.lines)
    if (line.text.starts_with(target + " = ")) line.text = "nothing to do, as in DeepSpeed: " + reason;
}

void DeepSpeedTranslation::leave_out_idle() {
  const auto is_zero = [&](const std::string& target) { return std::strtod(value_of(target).c_str(), nullptr) == 0.0; };
  const std::string schedule = value_of("learning_rate.plugin");
  if (schedule == "lr_range_test" || !value_of("learning_rate." + schedule + ".cycle_max_lr").empty() ||
      !value_of("learning_rate." + schedule + ".warmup_max_lr").empty())
    leave_out("learning_rate.base", "the scheduler has its own rates");
  const std::string cycle = "learning_rate.one_cycle.", scale = "precision.fp16.", sgd = "optimizer.sgd.";
  if (value_of(cycle + "cycle_momentum") != "true")
    for (const char* const option : {"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"})
      leave_out(cycle + option, "the momentum is not cycled");
  if (is_zero(cycle + "decay_step_size"))
    for (const char* const option : {"decay_lr_rate", "decay_mom_rate"})
      leave_out(cycle + option, "without decay_step_size nothing decays");
  if (is_zero(cycle + "decay_lr_rate") && is_zero(cycle + "decay_mom_rate"))
    leave_out(cycle + "decay_step_size", "without decay_lr_rate and decay_mom_rate nothing decays");
  if (!is_zero(scale + "loss_scale"))
    for (const char* const option :
         {"initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"})
      leave_out(scale + option, "loss_scale is static");
  const std::string zero3 = "partitioner.zero3.";
  if (is_zero(zero3 + "persistence_threshold"))
    leave_out(zero3 + "model_persistence_threshold", "no parameter is kept whole");
  if (is_zero(sgd + "momentum")) leave_out(sgd + "dampening", "there is no momentum to dampen");
  const std::string home = value_of("offload.optimizer.plugin");
  if ((home.empty() || home == "none") && value_of("offload.automatic") != "true" && value_of("offload") != "auto")
    leave_out("offload.update_elements", "no optimizer state is offloaded");
  if (home == "cpu") leave_out("offload.update_elements", "state on the host is updated in place");
}

}  // namespace strata::deepspeed
