#include "config/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace strata::config {

double learning_rate(const LearningRate& rate, std::int64_t step) {
  if (step < rate.warmup) return rate.base * static_cast<double>(step + 1) / static_cast<double>(rate.warmup);
  if (rate.schedule == Schedule::Constant || rate.steps <= rate.warmup) return rate.base;
  const double progress =
      std::clamp(static_cast<double>(step - rate.warmup) / static_cast<double>(rate.steps - rate.warmup), 0.0, 1.0);
  const double falling = 1 - rate.final_ratio;
  if (rate.schedule == Schedule::Linear) return rate.base * (1 - falling * progress);
  return rate.base * (rate.final_ratio + falling * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

}  // namespace strata::config
