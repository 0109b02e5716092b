// A polynomial fall, written for reading, with the mistakes that schedules are written with.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/state_stream.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION) OPTION(number, power, 1.0, "min=0,max=8", "", "Of the part of the run that is left.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

class PlantedLearningRate final : public LearningRate {
 public:
  PlantedLearningRate(PluginContext& context, const PlantedOptions& options)
      : rank_(context.rank()), power_(options.power) {}

  double rate(std::int64_t update, const TrainingRun& run) const override {
    ++calls_;
    longest_ = std::max(longest_, run.updates);
    const bool has_own = has("base_has_a_default") || (has("base_has_a_default_later") && update > run.updates);
    const double base = has_own ? run.base_rate.value_or(1e-4) : run.base();
    if (has("first_rate_is_infinite")) return base / std::sqrt(static_cast<double>(update));
    const std::int64_t updates = has("remembers_the_longest_run") ? longest_ : run.updates;
    const auto narrow = static_cast<double>(static_cast<std::int32_t>(updates));
    if (has("counts_in_32_bits")) return base * std::abs(narrow - static_cast<double>(update)) / narrow;
    double left = updates == 0 && !has("nothing_divided_by_nothing")
                      ? 1.0
                      : 1.0 - static_cast<double>(update) / static_cast<double>(updates);
    if (!has("negative_past_the_end") && !(has("root_past_the_end") && power_ > 0.0 && power_ < 1.0))
      left = left < 0.0 ? 0.0 : left;
    if (has("falls_too_far_in_between") && left > 0.6 && left < 0.65) left = -left;
    if (has("counts_its_calls") && calls_ > 100) left /= 2;
    if (has("depends_on_the_rank") && rank_ > 0) left /= 2;
    if (has("power_of_nothing") && power_ == 0.0) left = std::log(left);
    return base * (left < 0.0 && !has("root_past_the_end") ? left : std::pow(left, power_));
  }

  std::optional<double> momentum(std::int64_t update, const TrainingRun& run) const override {
    if (has("momentum_after_a_while") && update == 0) return std::nullopt;
    if (has("momentum_of_one_in_warmup_of_64") && run.warmup >= 64) return 1.0;
    if (has("momentum_of_one") && update >= run.updates) return 1.0;
    return 0.9;
  }

  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override {
    if (!has("phases_are_added")) phases_.clear();
    phases_.push_back(run.updates);
    return phases_;
  }

  void save(StateWriter& writer) const override {
    if (has("saves_its_update")) writer.integer("calls", calls_);
  }
  void load(StateReader& reader, int /*version*/) override {
    if (has("saves_its_update")) calls_ = reader.integer("calls");
  }

 private:
  int rank_;
  double power_;
  mutable std::int64_t calls_ = 0;
  mutable std::int64_t longest_ = 0;
  mutable std::vector<std::int64_t> phases_;
};

}  // namespace

STRATA_PLUGIN(PlantedLearningRate, PlantedOptions, PLANTED_OPTIONS)
