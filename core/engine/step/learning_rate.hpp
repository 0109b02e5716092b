#pragma once
#include <strata/learning_rate.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "stage/named_plugin.hpp"

namespace strata::step {

// Learning rates of all optimizer updates of a run: linear warm-up, then the plugin's schedule. With W warm-up updates,
// update t has (t + 1) / W of the schedule's first rate, so W = 0 and 1 both start there; the momentum is the
// schedule's first. Update W + t is the schedule's update t.
class RunLearningRate {
 public:
  // Uses a run's plugin, which must outlive this object.
  RunLearningRate(stage::NamedPlugin<LearningRate> plugin, const config::RunConfig& config);
  // Makes its own plugin, for use without a run. Throws UserError if the plugin refuses its options.
  RunLearningRate(const config::RunConfig& config, plugins::PluginRegistry& registry);

  // Returns rate and momentum. Throws the plugin's UserErrors with its name and its place in the config, and Bug for an
  // illegal value.
  double rate(std::int64_t update) const;
  std::optional<double> momentum(std::int64_t update) const;
  // Returns the updates at which the formula changes, ascending, with 0, the warm-up's last and the run's last.
  std::vector<std::int64_t> phase_starts() const;

  // Throws UserError if the plugin refuses this run, or if learning_rate.base is given and not used.
  void check() const;
  // Throws UserError if the schedule has a momentum and the optimizer takes none.
  void check_momentum(const stage::NamedPlugin<Optimizer>& optimizer) const;
  // True if a run of `steps` steps has the same rates and momenta, up to the end of the shorter run.
  bool same_over(std::int64_t steps) const;

  std::int64_t steps() const { return steps_; }  // steps of the run

 private:
  template <typename Ask>
  auto ask(const char* function, std::int64_t update, Ask&& ask) const;
  // True if the rates do not depend on the base.
  bool has_own_rates() const;

  std::shared_ptr<PluginContext> context_;  // null if the plugin is the run's
  std::shared_ptr<LearningRate> made_;
  stage::NamedPlugin<LearningRate> plugin_;
  Place place_;
  std::int64_t steps_;
  TrainingRun run_;
  bool base_is_compared_ = false;  // true: rules of parameters have own rates, stored as fractions of the base
};

}  // namespace strata::step
