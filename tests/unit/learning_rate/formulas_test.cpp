// Every schedule over every update, against its formula written once more from its definition: by what each update does
// to the rate, or by another form of the same expression than the code's.
#include <cmath>
#include <functional>

#include "run.hpp"

namespace strata {
namespace {

using Formula = std::function<double(int)>;

// Over all updates of the run and some after it.
void check(const step::RunLearningRate& rate, const Formula& formula) {
  for (int update = 0; update < rate.steps() + 50; ++update) {
    CAPTURE(update);
    CHECK(rate.rate(update) == Approx(formula(update)).epsilon(1e-12).margin(1e-15));
  }
}

// The linear warm-up to the base, 3e-4; `then` gets the rest.
Formula after_warmup(int warmup, const Formula& then) {
  return [warmup, then](int t) { return t < warmup ? 3e-4 / warmup * (t + 1) : then(t); };
}

// The cosine's half wave by its addition theorem, from the last point.
double falling_wave(double p) {
  return 0.5 - 0.5 * std::cos(pi * (1 - p));
}

}  // namespace

TEST_CASE("constant, linear and cosine follow their closed forms at every update") {
  for (const int warmup : {0, 1, 2, 17, 99, 100, 150}) {
    check(learning_rate_of("constant", {}, {100, warmup}), after_warmup(warmup, [](int) { return 3e-4; }));
    for (const double last : {0.0, 0.1, 1.0}) {
      CAPTURE(warmup, last);
      const fakes::OptionTexts options{{"final_ratio", text(last)}};
      const auto left = [=](int t) { return warmup >= 100 ? 1.0 : std::max(0.0, (100.0 - t) / (100 - warmup)); };
      check(learning_rate_of("linear", options, {100, warmup}),
            after_warmup(warmup, [=](int t) { return 3e-4 * last + (3e-4 - 3e-4 * last) * left(t); }));
      check(learning_rate_of("cosine", options, {100, warmup}), after_warmup(warmup, [=](int t) {
              return 3e-4 * last + (3e-4 - 3e-4 * last) * falling_wave(1 - left(t));
            }));
    }
  }
}

TEST_CASE("decays are monotonic with the right end, and one step has the base rate") {
  const step::RunLearningRate rate = learning_rate_of("cosine", {{"final_ratio", "0.1"}}, {100, 20, 2.0});
  CHECK(rate.rate(19) == 2.0);
  CHECK(rate.rate(20) == 2.0);
  CHECK(rate.rate(40) == Approx(2.0 * (0.1 + 0.9 * 0.5 * (1 + std::cos(pi / 4)))).epsilon(1e-12));
  for (std::int64_t update = 20; update < 100; ++update) CHECK(rate.rate(update + 1) < rate.rate(update));
  CHECK(rate.rate(500) == Approx(0.2));  // past the end it stays
  CHECK(learning_rate_of("cosine", {}, {1, 0, 2.0}).rate(0) == 2.0);
  CHECK(learning_rate_of("cosine", {}, {1, 0, 2.0}).rate(1) == Approx(0.0).margin(1e-15));
}

TEST_CASE("wsd is level between its warm-up and its decay, and decays by its style") {
  for (const int decay : {1, 10, 37, 90}) {
    for (const std::string style : {"linear", "cosine", "minus_sqrt", "exponential"}) {
      const step::RunLearningRate rate = learning_rate_of(
          "wsd", {{"final_ratio", "0.05"}, {"decay_steps", text(decay)}, {"decay_style", style}}, {100, 10});
      const auto remaining = [=](int t) {
        const double q = std::min(1.0, (t - (100.0 - decay)) / decay);
        if (q <= 0) return 1.0;
        if (style == "linear") return 1 - q;
        if (style == "cosine") return falling_wave(q);
        if (style == "minus_sqrt") return 1 - std::pow(q, 0.5);
        return std::exp2(1 - q) - 1;
      };
      CAPTURE(decay);
      check(rate, after_warmup(10, [=](int t) { return 3e-4 * (0.05 + 0.95 * remaining(t)); }));
      CHECK(rate.rate(99) > 3e-4 * 0.05);
      CHECK(rate.rate(100) == Approx(3e-4 * 0.05));
      CHECK(rate.rate(100 - decay) == Approx(3e-4));
    }
  }
  check(learning_rate_of("wsd", {{"decay_steps", "1"}}, {100, 200}),  // all warm-up
        after_warmup(200, [](int) { return 3e-4; }));
}

TEST_CASE("wsd's default decay is a tenth of train.steps, with the warm-up") {
  const step::RunLearningRate rate = learning_rate_of("wsd", {}, {100, 40});
  CHECK(rate.rate(90) == 3e-4);
  CHECK(rate.rate(91) == Approx(3e-4 * 0.9));
  CHECK(learning_rate_of("wsd", {}, {5, 0}).rate(4) == 3e-4);     // one step at least
  CHECK(learning_rate_of("wsd", {}, {100, 97}).rate(98) < 3e-4);  // no more than are left
}

TEST_CASE("lr_range_test rises by step_rate each interval, for ever") {
  fakes::OptionTexts options{{"lr_range_test_step_size", "40"}, {"lr_range_test_step_rate", "0.5"}};
  const RunSettings run{500, 0, {}};  // needs no base
  check(learning_rate_of("lr_range_test", options, run), [](int t) { return 1e-3 + 1e-3 * 0.5 / 40 * t; });
  options.emplace_back("lr_range_test_staircase", "true");
  double expected = 1e-3;
  check(learning_rate_of("lr_range_test", options, run), [&](int t) {
    return t == 0 ? 1e-3 : t % 40 == 0 ? expected += 5e-4 : expected;
  });
}

TEST_CASE("one_cycle rises, falls and decays") {
  fakes::OptionTexts options{{"cycle_min_lr", "1e-4"},
                             {"cycle_max_lr", "1e-3"},
                             {"cycle_first_step_size", "30"},
                             {"cycle_second_step_size", "70"}};
  const auto rate = [&] { return learning_rate_of("one_cycle", options, {300, 0, {}}); };
  const auto up = [](int t) { return 1e-4 + 9e-4 / 30 * t; };
  const auto down = [](int t) { return 1e-3 - 9e-4 / 70 * (t - 30); };
  check(rate(), [&](int t) { return t <= 30 ? up(t) : t <= 100 ? down(t) : 1e-4; });
  options.emplace_back("decay_lr_rate", "0.5");
  options.emplace_back("decay_step_size", "20");
  check(rate(), [&](int t) { return t <= 30 ? up(t) : t <= 100 ? down(t) : 1e-4 * 40 / (t - 100 + 40); });

  options.emplace_back("cycle_first_stair_count", "3");  // a stair each 10 updates, the top at the peak only
  options.emplace_back("cycle_second_stair_count", "2");
  check(rate(), [&](int t) {
    if (t <= 30) return up(t / 10 * 10);
    if (t <= 65) return t <= 30 ? 1e-3 : 1e-4 + 9e-4 / 2;
    if (t <= 100) return 1e-4;
    return 1e-4 * 40 / (t - 100 + 40);
  });
}

TEST_CASE("one_cycle's defaults: a second half as long as the first, a peak of the base") {
  const fakes::OptionTexts short_form{{"cycle_first_step_size", "30"}, {"cycle_first_stair_count", "3"}};
  const fakes::OptionTexts long_form{{"cycle_first_step_size", "30"},
                                     {"cycle_first_stair_count", "3"},
                                     {"cycle_second_step_size", "30"},
                                     {"cycle_second_stair_count", "3"},
                                     {"cycle_max_lr", "0.0003"}};
  const step::RunLearningRate one = learning_rate_of("one_cycle", short_form),
                              other = learning_rate_of("one_cycle", long_form);
  for (int update = 0; update < 100; ++update) CHECK(one.rate(update) == other.rate(update));
  CHECK(one.rate(30) == 3e-4);
}

TEST_CASE("the engine's warm-up rises to a schedule's first rate and precedes it") {
  const fakes::OptionTexts options{{"lr_range_test_step_size", "10"}};
  const step::RunLearningRate alone = learning_rate_of("lr_range_test", options),
                              behind = learning_rate_of("lr_range_test", options, {100, 20});
  for (int update = 0; update < 20; ++update) CHECK(behind.rate(update) == Approx(1e-3 * (update + 1) / 20));
  for (int update = 20; update < 100; ++update) CHECK(behind.rate(update) == alone.rate(update - 20));
}

TEST_CASE("phases start where the formula changes") {
  using Updates = std::vector<std::int64_t>;
  CHECK(learning_rate_of("wsd", {{"decay_steps", "20"}}, {100, 10}).phase_starts() == Updates{0, 9, 80, 99});
  CHECK(learning_rate_of("one_cycle", {}, {5000, 0}).phase_starts() == Updates{0, 2000, 4000, 4999});
  CHECK(learning_rate_of("one_cycle", {}, {5000, 10}).phase_starts() == Updates{0, 9, 2010, 4010, 4999});
  CHECK(learning_rate_of("one_cycle", {}, {1, 0}).phase_starts() == Updates{0});
  const fakes::OptionTexts warmup{{"warmup_num_steps", "10"}};
  CHECK(learning_rate_of("warmup_lr", warmup, {100, 0}).phase_starts() == Updates{0, 1, 11, 99});
}

TEST_CASE("whether another length changes a rate") {
  CHECK(learning_rate_of("constant").same_over(1000));
  CHECK(learning_rate_of("lr_range_test").same_over(7));
  CHECK(learning_rate_of("cosine").same_over(100));
  CHECK_FALSE(learning_rate_of("cosine").same_over(101));
  CHECK_FALSE(learning_rate_of("wsd", {{"decay_steps", "2"}}).same_over(99));
  CHECK_FALSE(learning_rate_of("wsd", {{"decay_steps", "20"}}).same_over(10));  // refused over 10 steps
  CHECK_FALSE(learning_rate_of("constant").same_over(0));
}

}  // namespace strata
