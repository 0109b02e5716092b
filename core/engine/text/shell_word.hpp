#pragma once
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

namespace strata::text {

// A word of a command line as a shell reads it: quoted, unless nothing in it means something to a shell.
inline std::string shell_word(const std::string& word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./=,:-+@%", c); };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace strata::text
