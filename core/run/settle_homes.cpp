#include "run/settle_homes.hpp"

#include <utility>

namespace strata::runtime {

namespace {
SettleHomes& settler() {
  static SettleHomes one;
  return one;
}
}  // namespace

void settle_homes_by(SettleHomes settle) {
  settler() = std::move(settle);
}

void settle_homes(ResolvedRun& run, const RankNumbers& place, int local_ranks, const MakeGroups& make_groups) {
  if (run.config.offload.automatic && settler()) settler()(run, place, local_ranks, make_groups);
}

}  // namespace strata::runtime
