// Values of options that CLI11 leaves as text, read by the rules of a config's values. Each throws UserError: option,
// text, rule.
#pragma once
#include <cstdint>
#include <string>

namespace strata::cli {

std::int64_t size_value(const std::string& option, const std::string& text);    // bytes, as in 32GB
std::int64_t memory_value(const std::string& option, const std::string& text);  // the same, from 1MiB: not 12 for 12GB
std::int64_t parameters_value(const std::string& option, const std::string& text);  // 1 to 1e15, as in 7.5e9
std::int64_t ranks_value(const std::string& text);                                  // of --ranks: 1 to 2^20

}  // namespace strata::cli
