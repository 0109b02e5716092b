#include "conformance/drawn/replay.hpp"

#include <strata/error.hpp>

#include <charconv>

namespace strata::conformance {

std::string replay_of(const Choices& choices) {
  std::size_t length = choices.size();
  while (length > 0 && choices[length - 1] == 0) --length;  // what is not given is 0
  std::string text = length == 0 ? "0" : "";
  for (std::size_t i = 0; i < length; ++i) text += (i == 0 ? "" : ".") + std::to_string(choices[i]);
  return text;
}

Choices choices_of(std::string_view replay) {
  Choices choices;
  const char* at = replay.data();
  const char* const end = at + replay.size();
  while (true) {
    const auto [behind, error] = std::from_chars(at, end, choices.emplace_back());
    if (error != std::errc() || (behind != end && *behind != '.'))
      throw UserError("--replay {}: it must be numbers separated by dots, as a failed case prints it", replay);
    if (behind == end) return choices;
    at = behind + 1;
  }
}

}  // namespace strata::conformance
