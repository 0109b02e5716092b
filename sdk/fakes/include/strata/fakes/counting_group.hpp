// A group of any size that moves no data and counts calls and logical bytes (see Traffic). Accepts meta tensors.
#pragma once
#include <strata/checked_group.hpp>

#include <memory>
#include <numeric>

namespace strata::fakes {

// Returns a group of ranks 0..size-1 seen from `rank`.
inline std::unique_ptr<CountingGroup> counting_group(int size, int rank = 0) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<CountingGroup>("counting", rank, std::move(members));
}

}  // namespace strata::fakes
