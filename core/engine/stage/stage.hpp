// Everything that one rank computes with. Each part is built from the parts before it, so the order of the members is
// the order in which a run is built:
//
//   place     where the rank stands in the mesh
//   plugins   the strategies that the config selects
//   memory    the device, and memory of calls
//   groups    the ranks that it communicates with
//   layers    the model, the schedule, and the layers that this rank computes
//   values    its flat parameters, their buffers and homes
//   updates   its slices with their optimizer state, and the paths of gradients
//   programs  the step as instructions
#pragma once
#include "stage/programs.hpp"

namespace strata::stage {

struct Stage {
  // Connects the groups and allocates the state; parameters are zero. [collective] over the run
  explicit Stage(const Setup& setup);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const RankPlace place;
  PluginSet& plugins;
  Memory memory;
  Groups groups;
  Layers layers;
  // Plain also for an evaluation, and for Speculative if no stage can look ahead.
  const config::StepPolicy policy;
  Values values;
  Updates updates;
  Programs programs;
};

}  // namespace strata::stage
