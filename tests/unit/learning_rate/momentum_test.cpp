// The momentum that one_cycle gives, beside DeepSpeed's formula: cycle_max_mom - (cycle_max_mom - cycle_min_mom) s, and
// after the cycle cycle_max_mom (1 + decay_mom_rate i). The first update has cycle_min_mom: deepspeed_test.cpp.
#include "run.hpp"

namespace strata {
namespace {

const fakes::OptionTexts cycling{{"cycle_first_step_size", "4"}, {"cycle_second_step_size", "8"},
                                 {"cycle_momentum", "true"},     {"cycle_min_mom", "0.8"},
                                 {"cycle_max_mom", "0.96"},      {"decay_step_size", "5"},
                                 {"decay_mom_rate", "0.01"}};

}  // namespace

TEST_CASE("one_cycle's momentum falls while its rate rises, and the other way round") {
  const step::RunLearningRate schedule = learning_rate_of("one_cycle", cycling, {20, 0});
  const std::vector<double> expected{0.80, 0.92, 0.88, 0.84,    0.80,    0.82,    0.84,    0.86,   0.88,    0.90,
                                     0.92, 0.94, 0.96, 0.96192, 0.96384, 0.96576, 0.96768, 0.9696, 0.97152, 0.97344};
  for (std::size_t update = 0; update < expected.size(); ++update) {
    CAPTURE(update);
    CHECK(schedule.momentum(static_cast<std::int64_t>(update)) == Approx(expected[update]).epsilon(1e-12));
  }
}

TEST_CASE("the warm-up has the schedule's first momentum") {
  const step::RunLearningRate schedule = learning_rate_of("one_cycle", cycling, {20, 5});
  for (int update = 0; update <= 5; ++update) CHECK(schedule.momentum(update) == 0.8);
  CHECK(schedule.momentum(6) == Approx(0.92));
}

TEST_CASE("a schedule that cycles no momentum gives none") {
  CHECK_FALSE(learning_rate_of("one_cycle").momentum(0));
  CHECK_FALSE(learning_rate_of("cosine").momentum(3));
}

}  // namespace strata
