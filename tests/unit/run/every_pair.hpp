// Choices of several lists that are too many to try all together.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using Names = std::vector<std::string>;

// Tuples of one choice from each list for which works(choice...) is true: as few as are found so that any two choices
// of two lists meet in one of them, if they do in any that works. Always the same. All tuples that work where the
// environment has STRATA_WHOLE_PRODUCTS, as the tests labelled "full" have.
template <typename Works, typename... Choice>
std::vector<std::tuple<Choice...>> every_pair_that(const Works& works, const std::vector<Choice>&... lists) {
  constexpr std::size_t count = sizeof...(Choice);
  using Places = std::array<std::size_t, count>;  // a tuple, by each choice's place in its list
  const auto chosen = [&]<std::size_t... list>(const Places& at, std::index_sequence<list...>) {
    return std::tuple<Choice...>{lists[at[list]]...};
  };
  const auto choices = [&](const Places& at) { return chosen(at, std::index_sequence_for<Choice...>()); };
  const Places sizes{lists.size()...};
  std::size_t all = 1;
  for (const std::size_t size : sizes) all *= size;

  std::vector<Places> candidates;
  for (std::size_t number = 0; number < all; ++number) {
    Places at{};
    for (std::size_t list = count, rest = number; list-- > 0; rest /= sizes[list]) at[list] = rest % sizes[list];
    if (std::apply(works, choices(at))) candidates.push_back(at);
  }
  std::vector<std::tuple<Choice...>> taken;
  if (std::getenv("STRATA_WHOLE_PRODUCTS") != nullptr) {
    for (const Places& at : candidates) taken.push_back(choices(at));
    return taken;
  }

  using Pair = std::array<std::size_t, 4>;
  const auto pairs_of = [&](const Places& at) {
    std::vector<Pair> pairs;
    for (std::size_t one = 0; one < count; ++one)
      for (std::size_t other = one + 1; other < count; ++other) pairs.push_back({one, at[one], other, at[other]});
    return pairs;
  };
  std::set<Pair> missing;
  for (const Places& at : candidates) {
    const std::vector<Pair> pairs = pairs_of(at);
    missing.insert(pairs.begin(), pairs.end());
  }
  const auto gain = [&](const Places& at) {
    return std::ranges::count_if(pairs_of(at), [&](const Pair& pair) { return missing.contains(pair); });
  };
  while (!missing.empty()) {
    const Places best = *std::ranges::max_element(candidates, {}, gain);  // of several the first
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    taken.push_back(choices(best));
  }
  return taken;
}

template <typename... Choice>
std::vector<std::tuple<Choice...>> every_pair(const std::vector<Choice>&... lists) {
  return every_pair_that([](const Choice&...) { return true; }, lists...);
}
