#pragma once
#include <strata/communicator.hpp>

#include "conformance/runner/case.hpp"

namespace strata::conformance::communicator_checks {

// drawn.cpp: results of operations.
void drawn(Subject& subject);

// peers.cpp
// Throws Skip if the plugin cannot be used here or moves no tensors in host memory, Failure if it reports this wrongly.
void require_usable(Subject& subject);
void waits_for_a_slow_peer(Subject& subject);
void abort_ends_waits(Subject& subject);
void connect_has_a_deadline(Subject& subject);
void lost_peer(Subject& subject);
void shutdown_does_not_wait(Subject& subject);

}  // namespace strata::conformance::communicator_checks
