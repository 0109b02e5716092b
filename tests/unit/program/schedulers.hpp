#pragma once
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"
#include "plugins/engine_plugins.hpp"
#include "plugins/registry.hpp"

#include "program/lower.hpp"

// The scheduler plugin of that name, from the folder that this build put it in.
inline std::unique_ptr<strata::Scheduler> make_scheduler(const std::string& name) {
  strata::plugins::PluginRegistry registry(std::vector<strata::plugins::SearchFolder>{{PLUGIN_FOLDER, "the test"}});
  const auto context = strata::plugins::asking_context(registry.find(strata::PluginKind::Scheduler, name));
  return registry.create<strata::Scheduler>(name, *context);
}

// Plays back what a test wrote down.
class FixedScheduler : public strata::Scheduler {
 public:
  FixedScheduler(strata::Placement placement, std::vector<std::string> orders)
      : placement_(std::move(placement)), orders_(std::move(orders)) {}
  strata::Placement place(const std::vector<strata::LayerCost>&, const strata::PipelineShape&) const override {
    return placement_;
  }
  std::vector<strata::ComputeAction> order(const strata::PipelineShape&, int stage) const override {
    return strata::parse_compute_order(orders_.at(static_cast<std::size_t>(stage)));
  }

 private:
  strata::Placement placement_;
  std::vector<std::string> orders_;
};

inline std::vector<strata::LayerCost> costs_of(int layers) {
  return std::vector<strata::LayerCost>(static_cast<std::size_t>(layers), {100, 1, 1, 1, 8, 100});
}

// One trainable flat parameter of 10 elements per layer.
inline strata::program::LayerOptions plain_layers(int layers, bool recompute = false) {
  strata::program::LayerOptions options;
  options.recompute.assign(static_cast<std::size_t>(layers), recompute);
  for (int layer = 0; layer < layers; ++layer) {
    options.parameters.flat_parameters.push_back({10, true});
    options.parameters.flat_parameters_of_layer.push_back({layer});
  }
  return options;
}

inline std::vector<std::string> to_text(const strata::program::Program& program) {
  std::vector<std::string> lines;
  for (const auto& instruction : program) lines.push_back(to_string(instruction));
  return lines;
}

// Where the first instruction of this text is, at `from` or later.
inline std::size_t place_of(const strata::program::Program& program, const std::string& text, std::size_t from = 0) {
  const std::vector<std::string> lines = to_text(program);
  const auto found = std::find(lines.begin() + static_cast<std::ptrdiff_t>(from), lines.end(), text);
  REQUIRE(found != lines.end());
  return static_cast<std::size_t>(found - lines.begin());
}
