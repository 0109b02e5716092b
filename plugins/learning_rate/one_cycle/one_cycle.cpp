// DeepSpeed's OneCycle, as DeepSpeed's optimizer uses it. The cycle's length is T = cycle_first_step_size +
// cycle_second_step_size.
//   update <= T  rate = cycle_min_lr + (cycle_max_lr - cycle_min_lr) s
//                momentum = cycle_max_mom - (cycle_max_mom - cycle_min_mom) s
//                s rises from 0 to 1 at cycle_first_step_size and falls to 0 at T. A stair count n above 0 rounds s
//                down to a multiple of 1 / n in its half of the cycle. The momentum of update 0 is cycle_min_mom, which
//                DeepSpeed's optimizer has until the schedule's first step.
//   update > T   rate = cycle_min_lr / (1 + decay_lr_rate i)
//                momentum = cycle_max_mom (1 + decay_mom_rate i)
//                i = (update - T) / decay_step_size, or 0 if decay_step_size is 0
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <string>

namespace {

using namespace strata;

#define CYCLE_OPTIONS(OPTION)                                                                                          \
  OPTION(number, cycle_min_lr, 0.0, "min=0", "", "Learning rate at the start and the end of the cycle.")               \
  OPTION(number, cycle_max_lr, -1.0, "min=-1", "", "Peak learning rate; -1: learning_rate.base.")                      \
  OPTION(integer, cycle_first_step_size, 2000, "min=1,max=1e12", "steps",                                              \
         "Steps from the start of the cycle to the peak.")                                                             \
  OPTION(integer, cycle_second_step_size, 0, "min=0,max=1e12", "steps",                                                \
         "Steps from the peak to the end of the cycle; 0: the value of cycle_first_step_size.")                        \
  OPTION(integer, cycle_first_stair_count, 0, "min=0,max=1e6", "",                                                     \
         "Number of stairs in the rise; 0: a continuous rise.")                                                        \
  OPTION(integer, cycle_second_stair_count, -1, "min=-1,max=1e6", "",                                                  \
         "Number of stairs in the fall; 0: a continuous fall; -1: the value of cycle_first_stair_count.")              \
  OPTION(integer, decay_step_size, 0, "min=0,max=1e12", "steps",                                                       \
         "Steps per decay interval after the cycle; 0: no decay.")                                                     \
  OPTION(number, decay_lr_rate, 0.0, "min=0", "",                                                                      \
         "Decay of the learning rate after the cycle: cycle_min_lr / (1 + decay_lr_rate x intervals since the end of " \
         "the cycle).")                                                                                                \
  OPTION(boolean, cycle_momentum, false, "", "",                                                                       \
         "Also cycle the momentum (Adam's first beta), in the opposite direction.")                                    \
  OPTION(number, cycle_min_mom, 0.8, "min=0,max=1", "",                                                                \
         "Momentum at the peak learning rate, and in the first update.")                                               \
  OPTION(number, cycle_max_mom, 0.9, "min=0,max=1", "", "Momentum at the start and the end of the cycle.")             \
  OPTION(number, decay_mom_rate, 0.0, "min=0", "",                                                                     \
         "Growth of the momentum after the cycle: cycle_max_mom x (1 + decay_mom_rate x intervals since the end of "   \
         "the cycle).")
STRATA_OPTIONS(CycleOptions, CYCLE_OPTIONS)

class OneCycle final : public LearningRate {
 public:
  OneCycle(PluginContext& context, const CycleOptions& options) : options_(options) {
    check_all_act(context.plugin_name(), options);
    toolbox::check_minus_one_or_more(options.cycle_max_lr, "learning_rate.one_cycle.cycle_max_lr");
    if (options_.cycle_second_step_size == 0) options_.cycle_second_step_size = options_.cycle_first_step_size;
    if (options_.cycle_second_stair_count == -1) options_.cycle_second_stair_count = options_.cycle_first_stair_count;
    length_ = options_.cycle_first_step_size + options_.cycle_second_step_size;
    if (options_.cycle_momentum && (options_.cycle_min_mom == 1 || options_.cycle_max_mom == 1))
      throw UserError(
          "learning_rate.one_cycle: cycle_min_mom or cycle_max_mom is 1; a momentum must be below 1; lower it");
  }

  double rate(std::int64_t update, const TrainingRun& run) const override {
    const double low = options_.cycle_min_lr;
    if (update > length_) return low / (1 + options_.decay_lr_rate * intervals_after(update));
    const double high = options_.cycle_max_lr == -1 ? run.base() : options_.cycle_max_lr;
    return low + (high - low) * height(update);
  }

  std::optional<double> momentum(std::int64_t update, const TrainingRun& /*run*/) const override {
    if (!options_.cycle_momentum) return std::nullopt;
    if (update == 0) return options_.cycle_min_mom;
    const double high = options_.cycle_max_mom;
    if (update <= length_) return high - (high - options_.cycle_min_mom) * height(update);
    const double decayed = high * (1 + options_.decay_mom_rate * intervals_after(update));
    if (decayed >= 1)
      throw UserError(
          "learning_rate.one_cycle.decay_mom_rate {} raises the momentum to {} at update {}; it must stay below 1: "
          "lower decay_mom_rate",
          options_.decay_mom_rate, decayed, update);
    return decayed;
  }

  std::vector<std::int64_t> phase_starts(const TrainingRun& /*run*/) const override {
    return {options_.cycle_first_step_size, length_};
  }

 private:
  static void check_all_act(const std::string& name, const CycleOptions& options) {
    const CycleOptions unset;
    const auto idle = [&](const std::string& option, double value, double otherwise, const std::string& without) {
      toolbox::check_idle(name, option, value, otherwise, without);
    };
    if (!options.cycle_momentum) {
      idle("cycle_min_mom", options.cycle_min_mom, unset.cycle_min_mom, "cycle_momentum");
      idle("cycle_max_mom", options.cycle_max_mom, unset.cycle_max_mom, "cycle_momentum");
      idle("decay_mom_rate", options.decay_mom_rate, unset.decay_mom_rate, "cycle_momentum");
    }
    if (options.decay_step_size == 0) {
      idle("decay_lr_rate", options.decay_lr_rate, unset.decay_lr_rate, "decay_step_size");
      idle("decay_mom_rate", options.decay_mom_rate, unset.decay_mom_rate, "decay_step_size");
    } else if (options.decay_lr_rate == 0 && options.decay_mom_rate == 0) {
      toolbox::check_idle(name, "decay_step_size", options.decay_step_size, 0, "decay_lr_rate or decay_mom_rate");
    }
  }

  // How far up the cycle an update is, 0 to 1. Stairs are counted in integers, because a rounded quotient could miss
  // one.
  double height(std::int64_t update) const {
    const bool first = update <= options_.cycle_first_step_size;
    const std::int64_t position = first ? update : length_ - update;
    const std::int64_t size = first ? options_.cycle_first_step_size : options_.cycle_second_step_size;
    const std::int64_t stairs = first ? options_.cycle_first_stair_count : options_.cycle_second_stair_count;
    return stairs == 0 ? toolbox::quotient(position, size) : toolbox::quotient(position * stairs / size, stairs);
  }
  double intervals_after(std::int64_t update) const {
    return options_.decay_step_size == 0 ? 0 : toolbox::quotient(update - length_, options_.decay_step_size);
  }

  CycleOptions options_;
  std::int64_t length_ = 0;
};

}  // namespace

STRATA_PLUGIN(OneCycle, CycleOptions, CYCLE_OPTIONS)
