#include "communicator/checks.hpp"

namespace strata::conformance {

using namespace communicator_checks;

std::vector<Case> communicator_cases() {
  return {
      {"communicator.says_where_it_works",
       "unavailable() is empty or one sentence, device_types() are libtorch's names.", says_where_it_works},
      {"communicator.gathers", "all_gather puts every rank's part in its place, from within the output too.", gathers},
      {"communicator.reduces", "all_reduce, reduce and reduce_scatter give sums and maxima in every number format.",
       reduces},
      {"communicator.sums_in_rank_order", "All ranks get equal bits of a sum, and all_reduce those of reduce_scatter.",
       sums_in_rank_order},
      {"communicator.broadcasts", "Broadcast brings any root's bytes to all.", broadcasts},
      {"communicator.exchanges", "all_to_all brings part p of each rank's input to rank p.", exchanges},
      {"communicator.options_change_no_result", "Results have the same bits under every option.",
       options_change_no_result, std::chrono::seconds(120)},
      {"communicator.sends_in_order",
       "Messages arrive in the order in which they were sent, all sent before any is received.", sends_in_order},
      {"communicator.many_in_flight",
       "Many operations are started before the first is waited for, and waited for in any order.", many_in_flight},
      {"communicator.two_groups_at_once",
       "Operations of two groups are started and waited for in different orders on the ranks.", two_groups_at_once},
      {"communicator.starting_does_not_block", "Starting an operation returns though the others come seconds later.",
       starting_does_not_block},
      {"communicator.wait_means_done", "When wait() returns the output is there, however late the others were.",
       wait_means_done},
      {"communicator.barrier_waits", "No rank leaves a barrier before the last has come to it.", barrier_waits},
      {"communicator.waits_for_a_slow_peer", "An operation waits for a peer that computes for longer than the timeout.",
       waits_for_a_slow_peer},
      {"communicator.abort_ends_waits", "abort() from another thread ends every operation under way.",
       abort_ends_waits},
      {"communicator.connect_has_a_deadline", "Connecting to a rank that does not come ends within the timeout.",
       connect_has_a_deadline},
      {"communicator.lost_peer", "Operations with a rank that was killed end within seconds.", lost_peer},
      {"communicator.shutdown_does_not_wait", "shutdown() with an operation under way does not wait for the others.",
       shutdown_does_not_wait},
  };
}

}  // namespace strata::conformance
