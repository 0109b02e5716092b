#include "checkpoint/range_name.hpp"

#include <strata/error.hpp>

#include <charconv>
#include <string_view>
#include <utility>

namespace strata::checkpoint {
namespace {

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(value) != text || value < 0)
    return std::nullopt;
  return value;
}

}  // namespace

std::string format_range_name(const RangeName& name) {
  strata_check(!name.state.empty() && name.state.find('|') == std::string::npos,
               "a state's name is not empty and holds no '|'");
  return name.parameter + "|" + name.state + "|" + std::to_string(name.begin) + ":" + std::to_string(name.end) +
         (name.parts == 1 ? "" : "|" + std::to_string(name.part) + "/" + std::to_string(name.parts));
}

std::optional<RangeName> parse_range_name(const std::string& text) {
  std::string_view rest = text;
  const auto take_last = [&] {  // what follows the last '|'
    const std::size_t bar = rest.rfind('|');
    const std::string_view last = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
    rest = rest.substr(0, bar == std::string_view::npos ? 0 : bar);
    return last;
  };
  const auto pair = [](std::string_view two, char between) -> std::optional<std::pair<std::int64_t, std::int64_t>> {
    const std::size_t middle = two.find(between);
    if (middle == std::string_view::npos) return std::nullopt;
    const auto first = parse_count(two.substr(0, middle)), second = parse_count(two.substr(middle + 1));
    return first && second ? std::optional(std::pair(*first, *second)) : std::nullopt;
  };
  std::string_view last = take_last();
  std::pair<std::int64_t, std::int64_t> part{0, 1};
  if (const auto cut = pair(last, '/')) {
    if (cut->first >= cut->second || cut->second < 2 || cut->second > most_parts) return std::nullopt;
    part = *cut;
    last = take_last();
  }
  const auto range = pair(last, ':');
  const std::string state(take_last());
  if (!range || range->first > range->second || state.empty() || rest.empty()) return std::nullopt;
  return RangeName{std::string(rest),
                   state,
                   range->first,
                   range->second,
                   static_cast<int>(part.first),
                   static_cast<int>(part.second)};
}

}  // namespace strata::checkpoint
