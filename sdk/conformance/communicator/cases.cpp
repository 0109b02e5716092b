#include "conformance/communicator/checks.hpp"

namespace strata::conformance {

using namespace communicator_checks;

std::vector<Case> communicator_cases() {
  return {
      {"communicator.drawn",
       "On groups of any ranks, used at once and in any order, collectives and messages of any size give what the "
       "naive sums and copies give, with the same bits on all ranks; starting one does not block, a barrier does.",
       drawn, std::chrono::seconds(300), true},
      {"communicator.waits_for_a_slow_peer", "An operation waits for a peer that computes for longer than the timeout.",
       waits_for_a_slow_peer},
      {"communicator.abort_ends_waits", "abort() from another thread ends all pending and later operations.",
       abort_ends_waits},
      {"communicator.connect_has_a_deadline", "Connecting fails within the timeout if a rank is missing.",
       connect_has_a_deadline},
      {"communicator.lost_peer", "Operations with a killed rank fail within seconds, if only by abort().", lost_peer},
      {"communicator.shutdown_does_not_wait", "shutdown() during a pending operation does not wait for other ranks.",
       shutdown_does_not_wait},
  };
}

}  // namespace strata::conformance
