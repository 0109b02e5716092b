#include "text/nearest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/case_conv.hpp>

namespace strata::text {

using boost::algorithm::to_lower_copy;

std::size_t edit_distance(std::string_view left, std::string_view right) {
  const std::size_t width = right.size() + 1;
  std::vector<std::size_t> before(width), above(width), row(width);  // rows i-2, i-1 and i of the usual table
  for (std::size_t j = 0; j < width; ++j) row[j] = j;
  for (std::size_t i = 1; i <= left.size(); ++i) {
    before.swap(above);
    above.swap(row);
    const char letter = left[i - 1];
    row[0] = above[0] + (letter == '*' ? 0 : 1);
    for (std::size_t j = 1; j < width; ++j) {
      if (letter == '*') {
        row[j] = std::min(above[j], row[j - 1]);
        continue;
      }
      const std::size_t replaced = above[j - 1] + (letter == right[j - 1] || letter == '?' ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && letter == right[j - 2] && left[i - 2] == right[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[width - 1];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = to_lower_copy(std::string(word.substr(0, 200)));
  const auto distance = [&](const std::string& candidate) { return edit_distance(wanted, to_lower_copy(candidate)); };
  const auto best = std::ranges::min_element(
      candidates, [&](const std::string& left, const std::string& right) { return distance(left) < distance(right); });
  return best == candidates.end() ? "" : *best;
}

std::string near(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  return edit_distance(to_lower_copy(std::string(word.substr(0, 200))), to_lower_copy(best)) <=
                 std::max<std::size_t>(1, best.size() / 3)
             ? best
             : "";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  if (candidates.empty()) return "no name is known here";
  if (const std::string best = near(word, candidates); !best.empty()) return "did you mean " + best + "?";
  return fmt::format("known: {}", fmt::join(candidates, ", "));
}

}  // namespace strata::text
