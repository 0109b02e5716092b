// Random variations of a scaled-down run: its plugins on other meshes, with other numbers of micro-batches, layers and
// samples, other option values, recomputation and offload.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "conformance/drawn/draws.hpp"
#include "tools/verify/small_run.hpp"

namespace strata::verify {

struct DrawnRun {
  std::vector<std::string> changes;  // settings that the scaled-down run lacks
  std::vector<std::string> traits;   // result of each choice, equal for similar values
  std::optional<CheckedRun> run;     // empty if the config refuses the run, or nothing changes
  std::optional<CheckedRun> plain;   // plain_run() of the run
};

// Draws a run; the simplest result of each draw is that of `small`. At most 8 ranks. Sizes of the model in
// `user_settings` are kept. Offload devices that need a folder get `folder`.
DrawnRun drawn_run(const CheckedRun& small, const std::vector<std::string>& user_settings, const std::string& folder,
                   conformance::Draws& draws);

}  // namespace strata::verify
