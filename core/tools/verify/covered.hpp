// Which traits of runs have been seen together: what is wrong in a combination shows in the first run that has all of
// it.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace strata::verify {

class Covered {
 public:
  // The part of the sets of one, two, three and four of these traits that no run had that was added: a sum of parts, so
  // that pairs come before the far more sets of four.
  double unseen(const std::vector<std::string>& traits) const;
  void add(const std::vector<std::string>& traits);

 private:
  std::unordered_set<std::uint64_t> seen_;  // a number for each set
};

}  // namespace strata::verify
