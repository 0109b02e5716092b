#include "tools/chosen/option_values.hpp"

#include <strata/error.hpp>
#include <strata/options.hpp>

namespace strata::cli {

namespace {

// Sets only the fields that parse_option reads.
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

std::int64_t memory_value(const std::string& option, const std::string& text) {
  const std::int64_t bytes = size_value(option, text);
  if (bytes >= std::int64_t{1} << 20) return bytes;
  throw UserError("{} is '{}', which is {} bytes; it must be a size of at least 1MiB, with its unit: {}GB", option,
                  text, bytes, text.substr(0, text.find_first_not_of("0123456789.")));
}
std::int64_t size_value(const std::string& option, const std::string& text) {
  return parsed(option, "size", "1", "", text);
}
std::int64_t parameters_value(const std::string& option, const std::string& text) {
  try {
    return parsed(option, "integer", "1", "1e15", text);
  } catch (const UserError&) {
    throw UserError("{} is '{}'; it must be a number of parameters from 1 to 1e15, as in 7.5e9", option, text);
  }
}
std::int64_t ranks_value(const std::string& text) {
  return parsed("--ranks", "integer", "1", "1048576", text);
}

}  // namespace strata::cli
