// Ranks that are threads, with values that say where they came from.
#pragma once
#include <strata/fakes/partition_ranks.hpp>

#include <functional>
#include <string>
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

// A setting among so many data-parallel ranks.
struct Layout {
  fakes::OptionTexts options;
  int ranks = 1;
};
std::string to_string(const Layout& layout);  // "3 ranks with stage=2"

// Calls `work` for each setting on each number of ranks that the plugin takes, failures get the layout in front. Throws
// Failure when it takes none.
void for_each_layout(Subject& subject, const std::vector<int>& ranks, const std::function<void(const Layout&)>& work);
// Runs `body` on every rank, attached to flat parameters like `infos`; when one fails the others' waits end. Each is
// shut down after its body.
void on_ranks_of(Subject& subject, const Layout& layout, const std::vector<FlatParameterInfo>& infos,
                 const std::function<void(fakes::PartitionRank&, int rank)>& body);

// Fills this rank's slices as the engine does; publish_values() publishes all flat parameters too.
void write_values(fakes::PartitionRank& rank, double offset);
void publish_values(fakes::PartitionRank& rank, double offset);
// Gathers `flat`, compares every parameter's view with the published values, releases it.
void require_values(fakes::PartitionRank& rank, FlatParameter& flat, double offset, Phase phase, double tolerance);
}  // namespace strata::conformance
