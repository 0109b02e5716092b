#include "group/group_provider.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::runtime {

std::unique_ptr<CheckedGroup> CountingGroups::make(const GroupRequest& request) {
  const auto place = std::find(request.members.begin(), request.members.end(), rank_);
  strata_check(place != request.members.end(), "a rank asked for a group it is not a member of");
  return std::make_unique<CountingGroup>(request.name, static_cast<int>(place - request.members.begin()),
                                         request.members);
}

}  // namespace strata::runtime
