// Runs near a small one: its plugins on other meshes, with other numbers of micro-batches, layers and samples, other
// values of the plugins' own options, recomputation and offload.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "conformance/drawn/draws.hpp"
#include "tools/verify/small_run.hpp"

namespace strata::verify {

struct DrawnRun {
  std::vector<std::string> changes;  // settings that the small run does not have
  std::vector<std::string> traits;   // of the run: what each choice came to, alike for alike values
  std::optional<CheckedRun> run;     // nothing where the config refuses it, or nothing changes
  std::optional<CheckedRun> plain;   // plain_run() of it
};

// What each draw calls simplest is as `small` has it. At most 8 ranks. `user_settings` that say sizes of the model
// stay. Offload devices that need a folder get `folder`.
DrawnRun drawn_run(const CheckedRun& small, const std::vector<std::string>& user_settings, const std::string& folder,
                   conformance::Draws& draws);

}  // namespace strata::verify
