// Parses option values that CLI11 leaves as text, with the rules of config values. Each throws UserError with option,
// text and rule.
#pragma once
#include <cstdint>
#include <string>

namespace strata::cli {

std::int64_t size_value(const std::string& option, const std::string& text);  // bytes, as in 32GB
std::int64_t memory_value(const std::string& option,
                          const std::string& text);  // the same, at least 1MiB, so that 12 is not taken for 12GB
std::int64_t parameters_value(const std::string& option, const std::string& text);  // 1 to 1e15, as in 7.5e9
std::int64_t ranks_value(const std::string& text);                                  // of --ranks: 1 to 2^20

}  // namespace strata::cli
