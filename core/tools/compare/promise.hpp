// What the plugins in which two runs differ promise of each other's numbers, by EQUIVALENCE in their manifests; where
// the runs' sums differ in their order too, what all of their plugins do.
#pragma once
#include <optional>
#include <string>

#include "resolve/resolve_run.hpp"
#include "tools/compare/comparison.hpp"

namespace strata::compare {

// `rounding`: what sums in another order may make of numbers. Nothing where the runs differ in more than how the same
// training is carried out, as in the optimizer, or a plugin promises nothing of the others' numbers.
std::optional<Promise> promise(const resolve::ResolvedRun& run, const resolve::ResolvedRun& baseline, double rounding);

}  // namespace strata::compare
