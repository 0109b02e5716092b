// Pass 3: when each flat parameter is gathered and released.
#pragma once
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Forward, Backward and BackwardInput use the flat parameters of their layer. Each is gathered before its first use and
// released after its last. In between it stays gathered if the next use is near, by any of these rules:
// - no layer with other flat parameters computes in between;
// - the layers that do have at most `reuse_distance` elements, counted at each compute;
// - it would be prefetched again at once: there are at most `layers` computes in between, and it and they have at most
//   `elements` elements.
//
// It never stays if `reuse_distance` is negative or the next use needs another weight version. If `live_parameters` is
// too small to keep all, those with the nearest next use stay. Prefetches start as early as `lookahead` allows, in the
// order of the uses. The parameters of a single layer are gathered regardless of the limits. If parameters are
// `resident`, nothing is added.
Program add_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead);

// The maximum number of elements gathered or being gathered at any time in `program`; 0 if parameters are resident.
std::int64_t peak_live_elements(const Program& program, const ParameterUse& use);

// The phase for which a Forward, Backward or BackwardInput gathers its parameters.
Phase phase_of(const Instruction& compute);
// The flat parameters whose values a compute instruction reads.
const std::vector<int>& values_used(const Instruction& compute, const ParameterUse& use);

}  // namespace strata::runtime
