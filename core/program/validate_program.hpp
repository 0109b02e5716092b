// Checks what the passes of the core made of a valid schedule. A failure is a fault of a pass, so each throws Bug: a
// sentence and the instructions around the place, marked "<-- here".
#pragma once
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Every transfer between chunks on different stages is sent once after its data is there, and received once before it
// is used; and no backend can deadlock on it: runs all stages with rendezvous sends, one queue per device whose front
// entry alone is worked on, and computes that wait for their receives. One program per stage.
void validate_communication(const std::vector<Program>& stages, const Placement& placement);

// Values are gathered before each use, in the weight version it asks for, and released once nobody uses them; a
// Prefetch is followed by its Gather; what is live stays within `lookahead.live_parameters` or one layer's own, what is
// prefetched within `lookahead.elements`. Resident ones are neither gathered nor released.
void validate_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead);

// The gradient of each trainable flat parameter is borrowed before it is written and reduced once per micro-batch,
// after the last write; `first` and `last` are where they belong; a frozen one has no gradient. The step's end is there
// and publishes each trainable one that the program uses.
void validate_reduction(const Program& program, const ParameterUse& use);

}  // namespace strata::runtime
