// Pass 2: sends and receives between stages.
//
// [Note: no deadlock, on any backend] The strictest backend has no buffers (a send ends when its receive is posted) and
// one queue per device, of which it works only on the front. It cannot deadlock if all stages issue their sends and
// receives in the order of one list of all transfers, and every compute depends only on earlier entries of that list:
// the first unfinished transfer is then at the front of both its queues as soon as it is posted, and everything it
// waits for is done. The list sorts the transfers by the time at which a simulated run (forward 1, backward 2) has them
// ready, with ties in a fixed order. A transfer that depends on another is ready later, so the condition holds for
// every schedule that can run at all. Collectives among the ranks of one stage may go anywhere in between, because
// those ranks have the same program.
#pragma once
#include "program/instruction.hpp"
#include "program/timeline.hpp"

namespace strata::runtime {

// `timeline` is the complete run of all stages' orders with uniform costs, `program` the expanded order of `stage`. A
// send directly follows the compute that produces its data. A receive precedes the compute during which, or directly
// before which, its data becomes ready in the simulated run: the transfer overlaps with that compute, and the buffer is
// held for at most one compute. The order of the list may move it later.
Program add_communication(const Program& program, int stage, const Timeline& timeline, const Placement& placement);

}  // namespace strata::runtime
