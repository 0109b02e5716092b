// Every schedule over every step, against its formula written once more from its definition: by what each step does to
// the rate, or by another form of the same expression than the code's.
#include "config/learning_rate.hpp"

#include <cmath>
#include <functional>

#include "catch.hpp"

namespace strata::config {
namespace {

constexpr double kPi = 3.14159265358979323846;
using Formula = std::function<double(int)>;

// Over all steps of the run and some after it.
void check(const LearningRate& rate, const Formula& formula) {
  for (int step = 0; step < rate.steps + 50; ++step) {
    CAPTURE(step);
    CHECK(learning_rate(rate, step) == Approx(formula(step)).epsilon(1e-12).margin(1e-15));
  }
}

LearningRate of(Schedule schedule, int warmup, double final_ratio, int steps) {
  LearningRate rate;
  rate.base = 3e-4;
  rate.schedule = schedule;
  rate.warmup = warmup;
  rate.final_ratio = final_ratio;
  rate.steps = steps;
  return rate;
}

// The rising part that constant, linear, cosine and wsd have in common; `then` gets the rest.
Formula after_warmup(const LearningRate& rate, Formula then) {
  return [rate, then](int t) { return t < rate.warmup ? rate.base / rate.warmup * (t + 1) : then(t); };
}

// The cosine's half wave by its addition theorem, from the last point.
double falling_wave(double p) {
  return 0.5 - 0.5 * std::cos(kPi * (1 - p));
}

}  // namespace

TEST_CASE("constant, linear and cosine follow their closed forms at every step") {
  for (const int warmup : {0, 1, 2, 17, 99, 100, 150}) {
    for (const double last : {0.0, 0.1, 1.0}) {
      CAPTURE(warmup, last);
      LearningRate rate = of(Schedule::Constant, warmup, last, 100);
      check(rate, after_warmup(rate, [](int) { return 3e-4; }));
      rate.schedule = Schedule::Linear;
      const auto left = [=](int t) { return warmup >= 100 ? 1.0 : std::max(0.0, (100.0 - t) / (100 - warmup)); };
      check(rate, after_warmup(rate, [=](int t) { return 3e-4 * last + (3e-4 - 3e-4 * last) * left(t); }));
      rate.schedule = Schedule::Cosine;
      check(rate,
            after_warmup(rate, [=](int t) { return 3e-4 * last + (3e-4 - 3e-4 * last) * falling_wave(1 - left(t)); }));
    }
  }
}

TEST_CASE("wsd is level between its warm-up and its decay, and decays by its style") {
  for (const int decay : {1, 10, 37, 90}) {
    for (const DecayStyle style :
         {DecayStyle::Linear, DecayStyle::Cosine, DecayStyle::MinusSqrt, DecayStyle::Exponential}) {
      LearningRate rate = of(Schedule::Wsd, 10, 0.05, 100);
      rate.wsd = {decay, style};
      const auto remaining = [=](int t) {
        const double q = std::min(1.0, (t - (100.0 - decay)) / decay);
        if (q <= 0) return 1.0;
        if (style == DecayStyle::Linear) return 1 - q;
        if (style == DecayStyle::Cosine) return falling_wave(q);
        if (style == DecayStyle::MinusSqrt) return 1 - std::pow(q, 0.5);
        return std::exp2(1 - q) - 1;
      };
      CAPTURE(decay);
      check(rate, after_warmup(rate, [=](int t) { return 3e-4 * (0.05 + 0.95 * remaining(t)); }));
      CHECK(learning_rate(rate, 99) > 3e-4 * 0.05);
      CHECK(learning_rate(rate, 100) == Approx(3e-4 * 0.05));
      CHECK(learning_rate(rate, 100 - decay) == Approx(3e-4));
    }
  }
  LearningRate rate = of(Schedule::Wsd, 200, 0, 100);  // all warm-up
  rate.wsd = {1, DecayStyle::Linear};
  check(rate, after_warmup(rate, [](int) { return 3e-4; }));
}

TEST_CASE("lr_range_test rises by step_rate each interval, for ever") {
  LearningRate rate = of(Schedule::LrRangeTest, 0, 0, 500);
  rate.lr_range_test = {1e-3, 40, 0.5, false};
  check(rate, [](int t) { return 1e-3 + 1e-3 * 0.5 / 40 * t; });
  rate.lr_range_test.staircase = true;
  double expected = 1e-3;
  check(rate, [&](int t) { return t == 0 ? 1e-3 : t % 40 == 0 ? expected += 5e-4 : expected; });
}

TEST_CASE("one_cycle rises, falls and decays") {
  LearningRate rate = of(Schedule::OneCycle, 0, 0, 300);
  OneCycle& cycle = rate.one_cycle;
  cycle.min_lr = 1e-4;
  cycle.max_lr = 1e-3;
  cycle.first_step_size = 30;
  cycle.second_step_size = 70;
  const auto up = [](int t) { return 1e-4 + 9e-4 / 30 * t; };
  const auto down = [](int t) { return 1e-3 - 9e-4 / 70 * (t - 30); };
  check(rate, [&](int t) { return t <= 30 ? up(t) : t <= 100 ? down(t) : 1e-4; });
  cycle.decay_lr_rate = 0.5;  // no interval: no decay
  check(rate, [&](int t) { return t <= 30 ? up(t) : t <= 100 ? down(t) : 1e-4; });
  cycle.decay_step_size = 20;
  check(rate, [&](int t) { return t <= 30 ? up(t) : t <= 100 ? down(t) : 1e-4 * 40 / (t - 100 + 40); });

  cycle.first_stair_count = 3;  // a stair each 10 steps, the top at the peak only
  cycle.second_stair_count = 2;
  check(rate, [&](int t) {
    if (t <= 30) return up(t / 10 * 10);
    if (t <= 65) return t <= 30 ? 1e-3 : 1e-4 + 9e-4 / 2;
    if (t <= 100) return 1e-4;
    return 1e-4 * 40 / (t - 100 + 40);
  });
}

TEST_CASE("warmup_lr, warmup_decay_lr and warmup_cosine_lr follow their closed forms at every step") {
  for (const int width : {1, 2, 25, 120}) {
    for (const bool log : {true, false}) {
      const int w = width == 1 ? 2 : width;  // 2 at least
      const int total = 100;                 // less than the longest warm-up
      const WarmupType type = log ? WarmupType::Log : WarmupType::Linear;
      const auto rising = [=](int t) { return log ? std::log1p(t) / std::log(w) : 1.0 * t / w; };
      CAPTURE(width, log);

      LearningRate rate = of(Schedule::WarmupLr, 7, 0.5, total);  // warmup and final_ratio are not theirs
      rate.warmup_lr = {1e-5, 2e-3, width, type, total};
      const auto between = [](double g) { return (1 - g) * 1e-5 + g * 2e-3; };
      check(rate, [=](int t) { return t < w ? between(rising(t)) : 2e-3; });

      rate.schedule = Schedule::WarmupDecayLr;
      check(rate, [=](int t) {
        const double room = total > w ? total - w : 1;
        return between(t < w ? rising(t) : t < total ? (total - t) / room : 0);
      });

      rate.schedule = Schedule::WarmupCosineLr;
      rate.warmup_cosine_lr = {0.2, width, type, 1e-4, total};
      check(rate, [=](int t) {
        if (t < w) return 3e-4 * (0.2 + 0.8 * rising(t));
        const double p = total > w ? (t - w + 1.0) / (total - w) : 1.0;
        return 3e-4 * (1e-4 + 0.9999 * falling_wave(p < 1 ? p : 1));
      });
      CHECK(learning_rate(rate, total - 1 > w ? total - 1 : w) == Approx(3e-8));  // the floor by the last step
    }
  }
}

TEST_CASE("borders are where the formula changes") {
  LearningRate rate = of(Schedule::Wsd, 10, 0, 100);
  rate.wsd = {20, DecayStyle::Linear};
  CHECK(schedule_borders(rate) == std::vector<std::int64_t>{0, 9, 80, 99});
  rate = of(Schedule::OneCycle, 10, 0, 5000);
  CHECK(schedule_borders(rate) == std::vector<std::int64_t>{0, 2000, 4000, 4999});
  rate.steps = 1;
  CHECK(schedule_borders(rate) == std::vector<std::int64_t>{0});
}

}  // namespace strata::config
