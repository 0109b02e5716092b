#include "communicator/checks.hpp"

namespace strata::conformance {

using namespace communicator_checks;

std::vector<Case> communicator_cases() {
  return {
      {"communicator.says_where_it_works",
       "unavailable() is empty or gives the reason in one sentence; device_types() are libtorch device types.",
       says_where_it_works},
      {"communicator.gathers",
       "all_gather puts each rank's part in its place, also when the input is part of the output.", gathers},
      {"communicator.reduces",
       "all_reduce, reduce and reduce_scatter are right for sums and maxima in every number format.", reduces},
      {"communicator.sums_in_rank_order", "A sum has the same bits on all ranks, and in all_reduce and reduce_scatter.",
       sums_in_rank_order},
      {"communicator.broadcasts", "broadcast copies the root's bytes to all ranks, for any root.", broadcasts},
      {"communicator.exchanges", "all_to_all sends part p of each rank's input to rank p.", exchanges},
      {"communicator.options_change_no_result", "Results have the same bits with every option setting.",
       options_change_no_result, std::chrono::seconds(120)},
      {"communicator.sends_in_order",
       "Messages arrive in the order in which they were sent, also when all are sent before the first receive.",
       sends_in_order},
      {"communicator.many_in_flight", "Many operations can be in flight at once, and can be waited for in any order.",
       many_in_flight},
      {"communicator.two_groups_at_once", "Two groups do not block each other when ranks use them in different orders.",
       two_groups_at_once},
      {"communicator.starting_does_not_block",
       "Starting an operation returns at once, even if the other ranks start it seconds later.",
       starting_does_not_block},
      {"communicator.wait_means_done",
       "When wait() returns, the output is complete, however late the other ranks were.", wait_means_done},
      {"communicator.barrier_waits", "No rank leaves a barrier before all ranks have entered it.", barrier_waits},
      {"communicator.waits_for_a_slow_peer", "An operation waits for a peer that computes for longer than the timeout.",
       waits_for_a_slow_peer},
      {"communicator.abort_ends_waits", "abort() from another thread ends all pending operations.", abort_ends_waits},
      {"communicator.connect_has_a_deadline", "Connecting fails within the timeout if a rank is missing.",
       connect_has_a_deadline},
      {"communicator.lost_peer", "Operations with a killed rank fail within seconds.", lost_peer},
      {"communicator.shutdown_does_not_wait", "shutdown() during a pending operation does not wait for other ranks.",
       shutdown_does_not_wait},
  };
}

}  // namespace strata::conformance
