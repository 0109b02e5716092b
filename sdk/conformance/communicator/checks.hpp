#pragma once
#include "runner/case.hpp"

namespace strata::conformance::communicator_checks {

// drawn.cpp: what arrives where.
void drawn(Subject& subject);
// order.cpp
void says_where_it_works(Subject& subject);
void starting_does_not_block(Subject& subject);
void barrier_waits(Subject& subject);
// deadlines.cpp: peers that do not come, or go.
void waits_for_a_slow_peer(Subject& subject);
void abort_ends_waits(Subject& subject);
void connect_has_a_deadline(Subject& subject);
void lost_peer(Subject& subject);
void shutdown_does_not_wait(Subject& subject);

}  // namespace strata::conformance::communicator_checks
