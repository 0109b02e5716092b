#pragma once
#include "runner/case.hpp"

namespace strata::conformance::communicator_checks {

// collectives.cpp: what arrives where.
void says_where_it_works(Subject& subject);
void gathers(Subject& subject);
void reduces(Subject& subject);
void sums_in_rank_order(Subject& subject);
void broadcasts(Subject& subject);
void exchanges(Subject& subject);
void options_change_no_result(Subject& subject);
// order.cpp: when, and in which order.
void sends_in_order(Subject& subject);
void many_in_flight(Subject& subject);
void two_groups_at_once(Subject& subject);
void starting_does_not_block(Subject& subject);
void wait_means_done(Subject& subject);
void barrier_waits(Subject& subject);
// deadlines.cpp: peers that do not come, or go.
void waits_for_a_slow_peer(Subject& subject);
void abort_ends_waits(Subject& subject);
void connect_has_a_deadline(Subject& subject);
void lost_peer(Subject& subject);
void shutdown_does_not_wait(Subject& subject);

}  // namespace strata::conformance::communicator_checks
