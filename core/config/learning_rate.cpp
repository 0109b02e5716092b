#include "config/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace strata::config {
namespace {

double quotient(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// From 1 at p = 0 to 0 at p = 1.
double half_cosine(double p) {
  return (1 + std::cos(std::numbers::pi * p)) / 2;
}

double decay(DecayStyle style, double q) {
  switch (style) {
    case DecayStyle::Linear:
      return 1 - q;
    case DecayStyle::Cosine:
      return half_cosine(q);
    case DecayStyle::MinusSqrt:
      return 1 - std::sqrt(q);
    case DecayStyle::Exponential:
      return 2 * std::pow(0.5, q) - 1;
  }
  return 0;
}

// Constant, Linear, Cosine, Wsd.
double with_warmup(const LearningRate& rate, std::int64_t step) {
  if (step < rate.warmup) return rate.base * quotient(step + 1, rate.warmup);
  if (rate.schedule == Schedule::Constant || rate.steps <= rate.warmup) return rate.base;
  const double falling = 1 - rate.final_ratio;
  if (rate.schedule == Schedule::Wsd) {
    const std::int64_t stable_end = rate.steps - rate.wsd.decay_steps;
    const double q = step <= stable_end ? 0 : std::min(quotient(step - stable_end, rate.wsd.decay_steps), 1.0);
    return rate.base * (rate.final_ratio + falling * decay(rate.wsd.decay_style, q));
  }
  const double progress = std::clamp(quotient(step - rate.warmup, rate.steps - rate.warmup), 0.0, 1.0);
  if (rate.schedule == Schedule::Linear) return rate.base * (1 - falling * progress);
  return rate.base * (rate.final_ratio + falling * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

double range_test(const RangeTest& test, std::int64_t step) {
  const double interval = test.staircase ? static_cast<double>(step / test.step_size) : quotient(step, test.step_size);
  return test.min_lr * (1 + test.step_rate * interval);
}

std::int64_t cycle_length(const OneCycle& cycle) {
  return cycle.first_step_size + cycle.second_step_size;
}

// How far up the cycle a step is, 0 to 1. Stairs are counted in whole numbers: a quotient just below one would lose
// one.
double height(const OneCycle& cycle, std::int64_t step) {
  const bool first = step <= cycle.first_step_size;
  const std::int64_t position = first ? step : cycle_length(cycle) - step;
  const std::int64_t size = first ? cycle.first_step_size : cycle.second_step_size;
  const std::int64_t stairs = first ? cycle.first_stair_count : cycle.second_stair_count;
  return stairs == 0 ? quotient(position, size) : quotient(position * stairs / size, stairs);
}

double one_cycle(const OneCycle& cycle, std::int64_t step) {
  if (step <= cycle_length(cycle)) return cycle.min_lr + (cycle.max_lr - cycle.min_lr) * height(cycle, step);
  if (cycle.decay_step_size == 0) return cycle.min_lr;
  return cycle.min_lr / (1 + cycle.decay_lr_rate * quotient(step - cycle_length(cycle), cycle.decay_step_size));
}

double rise(WarmupType type, std::int64_t step, std::int64_t num_steps) {
  return type == WarmupType::Linear
             ? quotient(step, num_steps)
             : std::log(static_cast<double>(step + 1)) / std::log(static_cast<double>(num_steps));
}

double warmup_lr(const Warmup& warmup, bool decays, std::int64_t step) {
  const std::int64_t num_steps = std::max<std::int64_t>(warmup.num_steps, 2);
  double part = 1;
  if (step < num_steps)
    part = rise(warmup.type, step, num_steps);
  else if (decays)
    part = std::max(
        0.0, quotient(warmup.total_num_steps - step, std::max<std::int64_t>(1, warmup.total_num_steps - num_steps)));
  return warmup.min_lr + (warmup.max_lr - warmup.min_lr) * part;
}

double warmup_cosine_ratio(const WarmupCosine& warmup, std::int64_t step) {
  const std::int64_t num_steps = std::max<std::int64_t>(warmup.num_steps, 2);
  if (step < num_steps) return warmup.min_ratio + (1 - warmup.min_ratio) * rise(warmup.type, step, num_steps);
  const double progress =
      std::min(1.0, quotient(step - num_steps + 1, std::max<std::int64_t>(1, warmup.total_num_steps - num_steps)));
  return warmup.cos_min_ratio + (1 - warmup.cos_min_ratio) * half_cosine(progress);
}

}  // namespace

double learning_rate(const LearningRate& rate, std::int64_t step) {
  switch (rate.schedule) {
    case Schedule::Constant:
    case Schedule::Linear:
    case Schedule::Cosine:
    case Schedule::Wsd:
      return with_warmup(rate, step);
    case Schedule::LrRangeTest:
      return range_test(rate.lr_range_test, step);
    case Schedule::OneCycle:
      return one_cycle(rate.one_cycle, step);
    case Schedule::WarmupLr:
    case Schedule::WarmupDecayLr:
      return warmup_lr(rate.warmup_lr, rate.schedule == Schedule::WarmupDecayLr, step);
    case Schedule::WarmupCosineLr:
      return rate.base * warmup_cosine_ratio(rate.warmup_cosine_lr, step);
  }
  return rate.base;
}

std::vector<std::int64_t> schedule_borders(const LearningRate& rate) {
  std::set<std::int64_t> borders{0, rate.steps - 1};
  const auto add = [&](std::int64_t step) {
    if (step > 0 && step < rate.steps) borders.insert(step);
  };
  switch (rate.schedule) {
    case Schedule::Wsd:
      add(rate.steps - rate.wsd.decay_steps);
      [[fallthrough]];
    case Schedule::Constant:
    case Schedule::Linear:
    case Schedule::Cosine:
      add(rate.warmup - 1);
      break;
    case Schedule::LrRangeTest:
      break;
    case Schedule::OneCycle:
      add(rate.one_cycle.first_step_size);
      add(cycle_length(rate.one_cycle));
      break;
    case Schedule::WarmupDecayLr:
      add(rate.warmup_lr.total_num_steps);
      [[fallthrough]];
    case Schedule::WarmupLr:
      add(std::max<std::int64_t>(rate.warmup_lr.num_steps, 2));
      break;
    case Schedule::WarmupCosineLr:
      add(std::max<std::int64_t>(rate.warmup_cosine_lr.num_steps, 2));
      add(rate.warmup_cosine_lr.total_num_steps);
      break;
  }
  return {borders.begin(), borders.end()};
}

}  // namespace strata::config
