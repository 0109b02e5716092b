// The keys of learning_rate, which resolve_learning_rate.cpp reads. Sections and their parameters have DeepSpeed's
// names and meanings.
#include "config/keys.hpp"

namespace strata::config {

std::vector<Key> learning_rate_keys() {
  const auto type = [](const std::string& section) {
    return make_key("learning_rate." + section + ".warmup_type", "text", "log", "one_of=log|linear", "",
                    Affects::Numbers, "how the rate rises");
  };
  const auto steps = [](const std::string& path, Default value, const std::string& documentation) {
    return make_key("learning_rate." + path, "integer", value, "min=1,max=1e12", "steps", Affects::Numbers,
                    documentation);
  };
  const auto number = [](const std::string& path, Default value, const std::string& documentation,
                         const char* limits = "min=0") {
    return make_key("learning_rate." + path, "number", value, limits, "", Affects::Numbers, documentation);
  };
  const auto count = [](const std::string& path, Default value, const std::string& documentation) {
    return make_key("learning_rate." + path, "integer", value, "min=0,max=1e6", "", Affects::Numbers, documentation);
  };
  const auto flag = [](const std::string& path, const std::string& documentation) {
    return make_key("learning_rate." + path, "boolean", "false", "", "", Affects::Numbers, documentation);
  };
  const Default base = automatic("learning_rate.base");
  return {
      number("base", required, "the learning rate after the warm-up"),
      make_key("learning_rate.schedule", "text", "constant",
               "one_of=constant|linear|cosine|wsd|lr_range_test|one_cycle|warmup_lr|warmup_decay_lr|warmup_cosine_lr",
               "", Affects::Numbers, "how the learning rate goes over the run"),
      make_key("learning_rate.warmup", "integer", "0", "min=0", "steps", Affects::Numbers,
               "steps over which the learning rate rises linearly to base"),
      number("final_ratio", "0", "where linear, cosine and wsd end, as a part of base", "min=0,max=1"),
      steps("wsd.decay_steps", automatic("a tenth of train.steps"), "the last steps, in which the rate falls"),
      make_key("learning_rate.wsd.decay_style", "text", "linear", "one_of=linear|cosine|minus_sqrt|exponential", "",
               Affects::Numbers, "how it falls"),
      number("lr_range_test.lr_range_test_min_lr", "1e-3", "the first rate"),
      steps("lr_range_test.lr_range_test_step_size", "2000", "steps of one interval"),
      number("lr_range_test.lr_range_test_step_rate", "1.0", "what an interval adds, as a part of the first rate"),
      flag("lr_range_test.lr_range_test_staircase", "rise at the end of each interval only"),
      number("one_cycle.cycle_min_lr", "0", "where the cycle begins and ends"),
      number("one_cycle.cycle_max_lr", base, "its peak"),
      steps("one_cycle.cycle_first_step_size", "2000", "steps of the rising half"),
      steps("one_cycle.cycle_second_step_size", automatic("as the first"), "steps of the falling half"),
      count("one_cycle.cycle_first_stair_count", "0", "stairs of the rising half; 0: none"),
      count("one_cycle.cycle_second_stair_count", automatic("as the first"), "stairs of the falling half"),
      make_key("learning_rate.one_cycle.decay_step_size", "integer", "0", "min=0,max=1e12", "steps", Affects::Numbers,
               "steps of one interval after the cycle; 0: the rate stays"),
      number("one_cycle.decay_lr_rate", "0", "what an interval adds to what cycle_min_lr is divided by"),
      flag("one_cycle.cycle_momentum", "cycle the momentum (Adam's first beta) against the rate: not here, so false"),
      number("one_cycle.cycle_min_mom", "0.8", "the momentum at the peak", "min=0,max=1"),
      number("one_cycle.cycle_max_mom", "0.9", "the momentum where the cycle begins and ends", "min=0,max=1"),
      number("one_cycle.decay_mom_rate", "0",
             "what an interval after the cycle adds to what cycle_max_mom is multiplied by"),
      number("warmup_lr.warmup_min_lr", "0", "the first rate"),
      number("warmup_lr.warmup_max_lr", base, "the last"),
      steps("warmup_lr.warmup_num_steps", "1000", "steps between the two, 2 at least"),
      type("warmup_lr"),
      number("warmup_decay_lr.warmup_min_lr", "0", "the first rate"),
      number("warmup_decay_lr.warmup_max_lr", base, "the rate after the warm-up"),
      steps("warmup_decay_lr.warmup_num_steps", "1000", "steps between the two, 2 at least"),
      type("warmup_decay_lr"),
      steps("warmup_decay_lr.total_num_steps", automatic("train.steps"), "where the rate would be warmup_min_lr again"),
      number("warmup_cosine_lr.warmup_min_ratio", "0", "the first rate, as a part of base", "min=0,max=1"),
      steps("warmup_cosine_lr.warmup_num_steps", "1000", "steps from there to base, 2 at least"),
      type("warmup_cosine_lr"),
      number("warmup_cosine_lr.cos_min_ratio", "1e-4", "the last rate, as a part of base", "min=0,max=1"),
      steps("warmup_cosine_lr.total_num_steps", automatic("train.steps"), "where it is reached"),
  };
}

}  // namespace strata::config
