// Promises, by EQUIVALENCE in the manifests, of the plugins in which two runs differ; if the order of sums also
// differs, of all their plugins.
#pragma once
#include <optional>
#include <string>

#include "resolve/resolve_run.hpp"
#include "tools/compare/comparison.hpp"

namespace strata::compare {

// Returns the promise. `rounding`: effect of another order of sums. Empty if the runs differ in more than the execution
// of the same training, such as in the optimizer, or if a plugin promises nothing.
std::optional<Promise> promise(const resolve::ResolvedRun& run, const resolve::ResolvedRun& baseline, double rounding);

}  // namespace strata::compare
