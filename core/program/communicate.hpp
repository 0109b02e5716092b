// Pass 2: what travels between stages.
//
// [Note: no deadlock, on any backend] The strictest backend has no buffers (a send ends when its receive is posted),
// one queue per device, and works on the queue's front only. Nothing can deadlock there if all stages put their sends
// and receives in the order of one list of all transfers, and every compute depends on earlier entries of that list
// only: of the transfers not yet done, the first one is at the front of both its queues as soon as it is posted, and
// what it waits for is done. The list is the transfers by the time at which a simulated run (forward 1, backward 2) has
// them ready, equal times in a fixed order. A transfer that depends on another is ready later, so the condition holds
// for every schedule that can run at all. Collectives among the ranks of one stage may be put anywhere between: all of
// those ranks have the same program.
#pragma once
#include "program/instruction.hpp"
#include "program/timeline.hpp"

namespace strata::runtime {

// `timeline` is the complete run of all stages' orders with uniform costs, `program` the expanded order of `stage`. A
// send comes directly after the compute that makes its data. A receive comes before the compute during which, or
// directly before which, its data gets ready in the simulated run: early enough to travel while that compute runs, late
// enough to hold its buffer for one compute at most; later where the list demands it.
Program add_communication(const Program& program, int stage, const Timeline& timeline, const Placement& placement);

}  // namespace strata::runtime
