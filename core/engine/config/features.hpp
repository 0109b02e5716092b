// Features of a run that cannot be combined with every other one. A feature is found in the config, or in what plugins
// and model of a training answer.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "config/run_config.hpp"

namespace strata::config {

// Answers of the plugins and the model of a training, for the whole run and therefore equal on all ranks.
struct Answers {
  bool updates_within_step = false;  // scheduler: stages update within the step
  bool searches_scale = false;       // PrecisionPolicy::searches_scale
  bool measures = false;             // PrecisionPolicy::maxima
  bool releases_parameters = false;  // partitioner: releases parameters between two uses, by its look-ahead
  // Groups that hold all slices once; 0: the partitioner makes none. Empty without step_policy: local.
  std::optional<int> replica_groups = {};
  bool needs_sums = false;        // Optimizer::sums
  bool trains_elsewhere = false;  // Optimizer::trains_elsewhere
  bool exchanges = false;         // optimizer: OwnExchange::optimizer_exchanges
  bool leaves_gradients = false;  // partitioner: OwnExchange::partitioner_can_leave_gradients
  bool owns_all = false;          // partitioner: leaves gradients, and every rank owns every element
  std::string split_unit = {};    // "updates 6 neighbouring elements of w together", which ranks would share; or empty
  std::string shared_over_chunks = {};  // a trainable parameter that layers of several chunks use; empty: none
};

// Facts that decide which features a run has.
struct Facts {
  const RunConfig& config;
  const Answers* answers = nullptr;  // null before plugins are made, and in an evaluation
};

struct Feature {
  std::string_view name;  // in tables: "step_policy: local", "an optimizer that trains at other weights"
  std::string_view key;   // key of the config that decides; a message names the place that sets it
  // Returns what was found, as a clause of a message: "step_policy is local". Empty: the run does not have the feature,
  // or the answer that decides it is not known yet.
  std::string (*found)(const Facts& facts);
  std::string_view remedy;  // how to do without the feature: "set step_policy: plain"
};

}  // namespace strata::config
