// The table of features that cannot be combined: refusals, `strata config conflicts` and the test matrix read it.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "config/features.hpp"

namespace strata::config {

// Two features that a run cannot have together. Its error reads
//   FIRST, and SECOND: REASON; REMEDY OF THE FIRST, or REMEDY OF THE SECOND
struct Conflict {
  const Feature& first;
  const Feature& second;
  std::string_view reason;
  bool in_training_only = false;  // an evaluation can have both
};

// Returns all conflicts, in the order of the checks.
std::span<const Conflict> conflicts();

// Returns the error's text, with what was found; empty if the run does not have both features.
std::string refusal(const Conflict& conflict, const Facts& facts);

// Throws UserError for the first conflict of the run. Without answers, conflicts that only a training has are left to a
// later call. `place_of` returns where the config sets a key. [any rank]
void check_conflicts(const Facts& facts, const std::function<Place(std::string_view key)>& place_of = {});

}  // namespace strata::config
