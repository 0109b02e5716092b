// Arithmetic shared by several learning-rate schedules.
#pragma once
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

namespace strata::toolbox {

inline double quotient(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// Returns half a wave of the cosine: 1 at `progress` 0, 0 at 1.
inline double half_cosine(double progress) {
  return (1 + std::cos(std::numbers::pi * progress)) / 2;
}

// Returns the length in updates of the warm-up in DeepSpeed's schedules.
inline std::int64_t warmup_length(std::int64_t warmup_num_steps) {
  return std::max<std::int64_t>(warmup_num_steps, 2);
}

// Returns a DeepSpeed warm-up's progress, 0 to 1. `type`: linear, or log for log(value + 1) / log(length).
inline double warmup_progress(const std::string& type, std::int64_t value, std::int64_t length) {
  if (type == "linear") return quotient(value, length);
  return std::log(static_cast<double>(value + 1)) / std::log(static_cast<double>(length));
}

// Returns the value of a DeepSpeed warm-up schedule at update `update`. DeepSpeed's engine creates the schedule, which
// sets the first rate, and steps it after each optimizer update: value 0 serves updates 0 and 1, and value t update t +
// 1.
inline std::int64_t warmup_value(std::int64_t update) {
  return std::max<std::int64_t>(update - 1, 0);
}

// Throws UserError for values below 0 other than -1, which means "use another setting".
inline void check_minus_one_or_more(double value, const std::string& option) {
  if (value < 0 && value != -1) throw UserError("{} is {}; it must be -1, 0 or above 0", option, value);
}

}  // namespace strata::toolbox
