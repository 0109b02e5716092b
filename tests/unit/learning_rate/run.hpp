// A run's learning rate, from a plugin of the tree.
#pragma once
#include <strata/fakes/plugin_library.hpp>

#include <string>

#include "catch.hpp"
#include "plugins/engine_plugins.hpp"
#include "step/learning_rate.hpp"

namespace strata {

inline constexpr double pi = 3.14159265358979323846;

inline std::string text(double value) {
  return config::to_text(OptionValue(value));
}
inline std::string text(int value) {
  return std::to_string(value);
}

struct RunSettings {
  std::int64_t steps = 100;
  std::int64_t warmup = 0;
  std::optional<double> base = 3e-4;
};

inline config::RunConfig config_of(const std::string& name, const fakes::OptionTexts& options, const RunSettings& run) {
  const std::string file = std::string(PLUGIN_FOLDER) + "/libstrata_learning_rate_" + name + ".so";
  config::RunConfig config;
  config.train.steps = run.steps;
  config.learning_rate.base = run.base;
  config.learning_rate.warmup = run.warmup;
  config.learning_rate.place = {"c.yaml", 4};
  config.learning_rate.plugin = {"learning_rate", "learning_rate", file, name, {}, {}};
  config.learning_rate.plugin.options = fakes::PluginLibrary(file).values(options);
  return config;
}

inline step::RunLearningRate learning_rate_of(const std::string& name, const fakes::OptionTexts& options = {},
                                              const RunSettings& run = {}) {
  return {config_of(name, options, run), *plugins::open_registry("")};
}

}  // namespace strata
