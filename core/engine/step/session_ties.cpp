// Parameters that several pipeline stages hold: tied ones, whose layers lie on different stages.
#include <fmt/ranges.h>
#include <strata/error.hpp>

#include "group/group_plan.hpp"
#include "group/numbers.hpp"
#include "interface/src/split_mix.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Every rank looks at the whole model, so that all come to the same list.
void Session::find_ties() {
  for (std::size_t chunk = 0; chunk < plan_.placement.layers_of_chunk.size(); ++chunk) {
    const auto [begin, end] = plan_.placement.layers_of_chunk[chunk];
    for (int number = begin; number < end; ++number) {
      for (const ParameterInfo& parameter : stage_.model_layers[static_cast<std::size_t>(number)].parameters) {
        if (parameter.tie.empty()) continue;
        Tie& tie = ties_.try_emplace(parameter.tie, Tie{parameter, {}}).first->second;
        state::check_tie(tie.first_use, parameter);
        tie.stages.insert(plan_.placement.stage_of_chunk[chunk]);
        tie.chunks.insert(static_cast<int>(chunk));
      }
    }
  }
}

std::vector<int> Session::flats_of_ties(bool counted_elsewhere) const {
  std::vector<int> found;
  for (const auto& [name, tie] : ties_) {
    if (tie.stages.size() < 2 || !tie.stages.contains(stage_.stage)) continue;
    if (counted_elsewhere && *tie.stages.begin() == stage_.stage) continue;
    for (const FlatParameter* const flat : flat_)
      if (flat->info().parameters.front().info.tie == name) found.push_back(flat->info().id);
  }
  return found;
}

// The stages that hold a tied parameter each make its gradient from their own layers and update their own copy. The sum
// over the stages gives all of them the same bits, if ranks of equal data-parallel index own the same slices.
void Session::connect_ties(GroupProvider& groups, const std::vector<Slice>& slices) {
  for (const int id : flats_of_ties(false)) {
    const FlatParameter& flat = *flat_[static_cast<std::size_t>(id)];
    if (!flat.info().trainable) continue;
    const std::set<int>& stages = ties_.at(flat.info().parameters.front().info.tie).stages;
    const GroupRequest request = request_some(mesh_, place_, fmt::format("stages{}", fmt::join(stages, "+")),
                                              Axis::Pipeline, {stages.begin(), stages.end()});
    const auto [found, fresh] = groups_.try_emplace(request.name);
    if (fresh) found->second = groups.make(request);
    stage_.holders[id] = found->second.get();
    if (stage_.store->dry_run()) continue;
    std::uint64_t cuts = 0;  // a number that depends on each
    for (const Slice& slice : slices) {
      if (slice.flat != &flat || slice.begin == slice.end) continue;
      for (const std::int64_t border : {slice.begin, slice.end})
        cuts = (cuts + static_cast<std::uint64_t>(border) + 1) * golden_ratio;
    }
    const auto mine = static_cast<std::int64_t>(cuts);
    for (const std::int64_t other : gather_numbers(*found->second, stage_.store->device(), {mine}))
      if (other != mine)
        throw Bug(
            "{} owns other slices of {} on stage {} than on another stage; slices of a tied flat parameter must depend "
            "only on its elements, formats and units",
            stage_.partitioner.name, flat.info().name, stage_.stage);
  }
}

}  // namespace strata::runtime
