// Choice of homes for `offload: auto`, by a library that a program may link.
#pragma once
#include <functional>

#include "run/run.hpp"

namespace strata::runtime {

// Function that sets homes in a run's config in place of `offload: auto`. [collective] over the run
using SettleHomes =
    std::function<void(ResolvedRun& run, const RankNumbers& place, int local_ranks, const MakeGroups& make_groups)>;
// Registers the process's function.
void settle_homes_by(SettleHomes settle);
// Chooses homes if the config leaves them open and a function is registered. [collective] over the run
void settle_homes(ResolvedRun& run, const RankNumbers& place, int local_ranks, const MakeGroups& make_groups);

}  // namespace strata::runtime
