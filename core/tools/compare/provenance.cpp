#include "tools/compare/provenance.hpp"

#include <ctime>

#include "text/shell_word.hpp"
#include "tools/ranks/machine.hpp"
#include "tools/version/version.hpp"

namespace strata::compare {

namespace {

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

Provenance provenance_of(const std::vector<std::string>& words) {
  std::string command = "strata compare";
  for (const std::string& word : words) command += " " + text::shell_word(word);
  return {version::text(), now(), command, ranks::machine()};
}

}  // namespace strata::compare
