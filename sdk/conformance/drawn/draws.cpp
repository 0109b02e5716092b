#include "conformance/drawn/draws.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace strata::conformance {

namespace {

// Texts that the option may have other than its default. A number is its least, its greatest or a power of two: sums
// that it divides stay exact.
std::vector<std::string> texts_of(const OptionSpec& option, std::int64_t least, Draws& draws) {
  std::vector<std::string> texts = option.choices;
  if (option.type == "boolean") texts = {"true", "false"};
  const bool is_whole = option.type == "integer" || option.type == "size";
  if (!is_whole && option.type != "number") return texts;
  for (const std::string& limit : {option.minimum, option.maximum})
    if (!limit.empty() &&
        !(is_whole && std::atof(limit.c_str()) > 0 && std::atof(limit.c_str()) < static_cast<double>(least)))
      texts.push_back(limit);
  if (is_whole) texts.push_back(std::to_string(least * draws.size(std::int64_t{1} << 16)));
  if (!is_whole) texts.push_back(draws.chance(2) ? "0.5" : "0.25");
  return texts;
}

}  // namespace

std::int64_t Draws::between(std::int64_t least, std::int64_t most) {
  const auto range = static_cast<std::uint64_t>(most - least);
  std::uint64_t choice = 0;
  if (is_random_)
    choice = std::uniform_int_distribution<std::uint64_t>(0, range)(random_);
  else if (chosen_.size() < given_.size())
    choice = std::min(given_[chosen_.size()], range);
  chosen_.push_back(choice);
  if (listener_) listener_(choice);
  return least + static_cast<std::int64_t>(choice);
}

std::int64_t Draws::size(std::int64_t most) {
  const std::int64_t power = std::int64_t{1} << between(0, std::bit_width(static_cast<std::uint64_t>(most)) - 1);
  const std::vector<std::int64_t> near{power, power - 1, power + 1, power + power / 2, power + between(0, power - 1)};
  return std::clamp<std::int64_t>(pick(near), 1, most);
}

fakes::OptionTexts Draws::options(const std::vector<OptionSpec>& specs, std::int64_t least) {
  fakes::OptionTexts changed;
  for (const OptionSpec& option : specs) {
    if (!chance(3)) continue;
    const std::vector<std::string> texts = texts_of(option, least, *this);
    if (!texts.empty()) changed.emplace_back(option.name, pick(texts));
  }
  return changed;
}

}  // namespace strata::conformance
