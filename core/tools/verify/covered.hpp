// Combinations of traits that runs have covered: an error in a combination shows in the first run that has all of it.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace strata::verify {

class Covered {
 public:
  // Returns the fraction of the sets of one, two, three and four of these traits that no added run had: a sum of
  // fractions, so that pairs count before the far more numerous sets of four.
  double unseen(const std::vector<std::string>& traits) const;
  void add(const std::vector<std::string>& traits);

 private:
  std::unordered_set<std::uint64_t> seen_;  // a number per set
};

}  // namespace strata::verify
