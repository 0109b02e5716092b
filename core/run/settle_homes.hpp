// Homes for what `offload: auto` leaves open, for a program: what measures and chooses is a library that it may link.
#pragma once
#include <functional>

#include "run/run.hpp"

namespace strata::runtime {

// Gives the config of a run homes in place of `offload: auto`. [collective] over the run
using SettleHomes =
    std::function<void(ResolvedRun& run, const RankNumbers& place, int local_ranks, const MakeGroups& make_groups)>;
// The process's, from now on.
void settle_homes_by(SettleHomes settle);
// Where the config leaves them open and the process has something that settles them. [collective] over the run
void settle_homes(ResolvedRun& run, const RankNumbers& place, int local_ranks, const MakeGroups& make_groups);

}  // namespace strata::runtime
