#include "compare/provenance.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>

#include "tools/launch/machine.hpp"
#include "tools/version/version.hpp"

namespace strata::cli {

namespace {

// A word for a shell.
std::string quoted(const std::string& word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_./=,:-+@%", c); };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

report::Provenance provenance_of(const std::vector<std::string>& words) {
  std::string command = "strata compare";
  for (const std::string& word : words) command += " " + quoted(word);
  return {version::text(), now(), command, launch::machine()};
}

}  // namespace strata::cli
