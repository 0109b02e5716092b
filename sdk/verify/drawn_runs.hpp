// Runs near a small one: its plugins on other meshes, with other numbers of micro-batches, layers and samples, other
// values of the plugins' own options, recomputation and offload.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "drawn/draws.hpp"
#include "verify/small_run.hpp"

namespace strata::verify {

struct DrawnRun {
  std::vector<std::string> changes;  // settings that the small run does not have
  std::int64_t steps = 0;
  std::optional<CheckedRun> run;  // nothing where the config refuses it, or nothing changes
};

// What each draw calls simplest is as `small` has it. At most 8 ranks. `user_settings` that say sizes of the model
// stay.
DrawnRun drawn_run(const CheckedRun& small, const std::vector<std::string>& user_settings, conformance::Draws& draws);

}  // namespace strata::verify
