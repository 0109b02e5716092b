#include "tools/verify/covered.hpp"

#include <algorithm>
#include <functional>

#include "conformance/drawn/draws.hpp"

namespace strata::verify {

namespace {

constexpr int largest = 4;  // of the sets: what three plugins and a size must come together for

// A number for each set of `size` traits, without the first `from`; traits of all runs are in one order.
void add_sets(const std::vector<std::uint64_t>& traits, std::size_t from, int size, std::uint64_t begun,
              std::vector<std::uint64_t>& sets) {
  if (size == 0) return sets.push_back(begun);
  for (; from < traits.size(); ++from)
    add_sets(traits, from + 1, size - 1, conformance::mixed(begun, traits[from]), sets);
}

std::vector<std::uint64_t> sets_of(const std::vector<std::string>& traits, int size) {
  std::vector<std::uint64_t> hashes, sets;
  for (const std::string& trait : traits) hashes.push_back(std::hash<std::string>{}(trait));
  add_sets(hashes, 0, size, 0, sets);
  return sets;
}

}  // namespace

double Covered::unseen(const std::vector<std::string>& traits) const {
  double parts = 0.0;
  for (int size = 1; size <= largest; ++size) {
    const std::vector<std::uint64_t> sets = sets_of(traits, size);
    const auto unseen = std::ranges::count_if(sets, [&](std::uint64_t set) { return !seen_.contains(set); });
    parts += static_cast<double>(unseen) / static_cast<double>(sets.size());
  }
  return parts;
}

void Covered::add(const std::vector<std::string>& traits) {
  for (int size = 1; size <= largest; ++size)
    for (const std::uint64_t set : sets_of(traits, size)) seen_.insert(set);
}

}  // namespace strata::verify
