#include "cli/option_values.hpp"

#include <strata/options.hpp>

namespace strata::cli {

namespace {

// Only the fields that parse_option reads.
std::int64_t parsed(const std::string& option, const std::string& type, const std::string& minimum,
                    const std::string& maximum, const std::string& text) {
  OptionSpec spec;
  spec.name = option;
  spec.type = type;
  spec.minimum = minimum;
  spec.maximum = maximum;
  return std::get<std::int64_t>(parse_option(spec, text));
}

}  // namespace

std::int64_t size_value(const std::string& option, const std::string& text) {
  return parsed(option, "size", "1", "", text);
}
std::int64_t count_value(const std::string& option, const std::string& text) {
  return parsed(option, "integer", "1", "1e15", text);
}
std::int64_t ranks_value(const std::string& text) {
  return parsed("--ranks", "integer", "1", "1048576", text);
}

}  // namespace strata::cli
