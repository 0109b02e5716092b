// defines: size_value, count_value, ranks_value
// Values of options that CLI11 leaves as text, read by the rules of a config's values. Each throws UserError: option,
// text, rule.
#pragma once
#include <cstdint>
#include <string>

namespace strata::cli {

std::int64_t size_value(const std::string& option, const std::string& text);   // bytes, as in 32GB
std::int64_t count_value(const std::string& option, const std::string& text);  // from 1, as in 12 or 7.5e9
std::int64_t ranks_value(const std::string& text);                             // of --ranks: 1 to 2^20

}  // namespace strata::cli
