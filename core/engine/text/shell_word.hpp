#pragma once
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

namespace strata::text {

// Returns a word of a command line for a shell: quoted, unless it has no special characters.
inline std::string shell_word(const std::string& word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./=,:-+@%", c); };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace strata::text
