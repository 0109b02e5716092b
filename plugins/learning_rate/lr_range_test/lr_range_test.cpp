// lr_range_test_min_lr (1 + lr_range_test_step_rate i), i = update / lr_range_test_step_size; with
// lr_range_test_staircase i is rounded down. The options are those of DeepSpeed's LRRangeTest.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

namespace {

using namespace strata;

#define RANGE_OPTIONS(OPTION)                                                                      \
  OPTION(number, lr_range_test_min_lr, 1e-3, "min=0", "", "Initial learning rate.")                \
  OPTION(integer, lr_range_test_step_size, 2000, "min=1,max=1e12", "steps", "Steps per interval.") \
  OPTION(number, lr_range_test_step_rate, 1.0, "min=0", "",                                        \
         "Increase per interval, as a fraction of lr_range_test_min_lr.")                          \
  OPTION(boolean, lr_range_test_staircase, false, "", "",                                          \
         "Increase the rate only at the end of each interval; false: at every step.")
STRATA_OPTIONS(RangeOptions, RANGE_OPTIONS)

class LrRangeTest final : public LearningRate {
 public:
  LrRangeTest(PluginContext& /*context*/, const RangeOptions& options) : options_(options) {}
  double rate(std::int64_t update, const TrainingRun& /*run*/) const override {
    const std::int64_t size = options_.lr_range_test_step_size;
    const double interval =
        options_.lr_range_test_staircase ? static_cast<double>(update / size) : toolbox::quotient(update, size);
    return options_.lr_range_test_min_lr * (1 + options_.lr_range_test_step_rate * interval);
  }

 private:
  RangeOptions options_;
};

}  // namespace

STRATA_PLUGIN(LrRangeTest, RangeOptions, RANGE_OPTIONS)
