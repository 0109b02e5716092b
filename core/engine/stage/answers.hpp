#pragma once
#include "config/features.hpp"
#include "stage/layers.hpp"

namespace strata::stage {

// Asks plugins and model about the features of this training, for the table of conflicts (config/conflicts.hpp). All
// ranks get the same answers. `attached`: the partitioner is attached, so it knows its replica groups. [any rank]
config::Answers ask_features(const PluginSet& plugins, const RankPlace& place, const Layers& layers, bool attached);

// Returns, for each round of the optimizer's update, true if it begins with sums for parameters of the model.
std::vector<bool> sums_of_round(const PluginSet& plugins, const RankPlace& place, const Layers& layers);

// Returns the partitioner's group of ranks that own the same slices; null: there is none.
Group* replicas(const PluginSet& plugins, const RankPlace& place);

}  // namespace strata::stage
