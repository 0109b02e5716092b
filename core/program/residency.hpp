// Pass 3: when the full values of each flat parameter are there.
#pragma once
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Forward, Backward and BackwardInput use the flat parameters of their layer. Each is gathered before its first use and
// released after its last; in between it stays gathered where the next use is near, by any of these rules:
// - no layer with other flat parameters computes in between;
// - those that do have at most `reuse_distance` elements, counted at each compute;
// - it would be prefetched again at once: at most `layers` computes lie in between, and it and they have at most
//   `elements` elements.
//
// It never stays when `reuse_distance` is negative or the next use is of another weight version. Where
// `live_parameters` does not allow to keep all, those with the nearest next use stay. Prefetches start as early as
// `lookahead` allows, in the order of the uses. One layer's own parameters are gathered whatever the limits say. Where
// parameters are `resident` nothing is added.
Program add_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead);

// The most elements that are gathered or being gathered at one moment of `program`; 0 where parameters are resident.
std::int64_t peak_live_elements(const Program& program, const ParameterUse& use);

// The phase in which a Forward, Backward or BackwardInput wants its parameters.
Phase phase_of(const Instruction& compute);
// The flat parameters whose values a compute instruction reads.
const std::vector<int>& values_used(const Instruction& compute, const ParameterUse& use);

}  // namespace strata::runtime
