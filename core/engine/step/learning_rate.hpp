#pragma once
#include <strata/learning_rate.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "step/stage.hpp"

namespace strata::runtime {

// The learning rate of every optimizer update of a run: the plugin's schedule behind the linear warm-up. Of W warm-up
// updates, update t has (t + 1) / W of the schedule's first rate, so W = 0 and 1 both start there; the momentum is the
// schedule's first. Update W + t is the schedule's update t.
class RunLearningRate {
 public:
  // Of a run's plugin, which must outlive it.
  RunLearningRate(NamedPlugin<LearningRate> plugin, const config::RunConfig& config);
  // Of a plugin made for it alone, where there is no run. Throws UserError where the plugin refuses its options.
  RunLearningRate(const config::RunConfig& config, plugin_host::PluginRegistry& registry);

  // Both throw UserError where the plugin refuses, with its name and where the config names it, and Bug for a value
  // that cannot be.
  double rate(std::int64_t update) const;
  std::optional<double> momentum(std::int64_t update) const;
  // The updates of the run where the formula changes, ascending, 0, the warm-up's last and the run's last among them.
  std::vector<std::int64_t> phase_starts() const;

  // Throws UserError where the plugin refuses this run, and where learning_rate.base is given and not used.
  void check() const;
  // Throws UserError where the schedule gives a momentum and the optimizer takes none.
  void check_momentum(const NamedPlugin<Optimizer>& optimizer) const;
  // Whether a run of `steps` steps has the same rates and momenta, as far as both go.
  bool same_over(std::int64_t steps) const;

  std::int64_t steps() const { return steps_; }  // of the run

 private:
  template <typename Ask>
  auto ask(const char* function, std::int64_t update, Ask&& ask) const;
  // Whether the rates are the same without a base.
  bool has_own_rates() const;

  std::shared_ptr<PluginContext> context_;  // null where the plugin is the run's
  std::shared_ptr<LearningRate> made_;
  NamedPlugin<LearningRate> plugin_;
  Place place_;
  std::int64_t steps_;
  TrainingRun run_;
  bool base_is_compared_ = false;  // rules of parameters have their own rates, which are kept as fractions of the base
};

}  // namespace strata::runtime
