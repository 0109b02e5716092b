// The loss scale of precision/fp16, step by step.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/precision_policy.hpp>

#include <cmath>
#include <limits>

#include "catch.hpp"

namespace {

using strata::Verdict;
using strata::fakes::OptionTexts;
using strata::fakes::SavedState;
using Policy = strata::fakes::LoadedPlugin<strata::PrecisionPolicy>;

const strata::fakes::PluginLibrary& library() {
  static const strata::fakes::PluginLibrary fp16(FP16_LIBRARY);
  return fp16;
}

OptionTexts with(OptionTexts options, const std::string& name, const std::string& value) {
  options.emplace_back(name, value);
  return options;
}

Verdict judge(Policy& policy, std::int64_t step, bool finite) {
  return policy->judge({step, finite ? 1.0 : std::numeric_limits<double>::infinity(), finite});
}

// One step: whether its gradients are finite, and what is then.
struct Step {
  bool finite;
  double scale;
  std::int64_t hysteresis;
};

constexpr bool all_finite = true, overflowed = false;

// Worked out by hand from DeepSpeed's DynamicLossScaler.update_scale: initial scale 16, window 3, hysteresis 2, minimum
// 2. An overflow lowers the counter, or halves the scale when the counter is 1; a finite step doubles the scale and
// refills the counter when (step - last overflow - 1) is 3, 6, ..., the last overflow being -1 at first.
const std::vector<Step> scale_trace{
    {all_finite, 16, 2},  // 0
    {all_finite, 16, 2},  // 1
    {all_finite, 16, 2},  // 2
    {all_finite, 32, 2},  // 3: the fourth, as 3 lie before it
    {all_finite, 32, 2},  // 4
    {overflowed, 32, 1},  // 5: forgiven
    {all_finite, 32, 1},  // 6: does not refill
    {overflowed, 16, 1},  // 7
    {overflowed, 8, 1},   // 8: no refill by halving, so at once
    {overflowed, 4, 1},   // 9
    {all_finite, 4, 1},   // 10
    {all_finite, 4, 1},   // 11
    {all_finite, 4, 1},   // 12
    {all_finite, 8, 2},   // 13
    {overflowed, 8, 1},   // 14
    {overflowed, 4, 1},   // 15
    {all_finite, 4, 1},   // 16
    {all_finite, 4, 1},   // 17
    {all_finite, 4, 1},   // 18
    {all_finite, 8, 2},   // 19
    {all_finite, 8, 2},   // 20
    {all_finite, 8, 2},   // 21
    {all_finite, 16, 2},  // 22: twice the window
    {overflowed, 16, 1},  // 23
    {overflowed, 8, 1},   // 24
    {overflowed, 4, 1},   // 25
    {overflowed, 2, 1},   // 26: the minimum
};

const OptionTexts trace_options{{"initial_scale_power", "4"}, {"loss_scale_window", "3"}, {"min_loss_scale", "2"}};

void check_trace(Policy& policy, const std::vector<Step>& trace, std::size_t from = 0) {
  for (std::size_t step = from; step < trace.size(); ++step) {
    CAPTURE(step);
    CHECK(judge(policy, static_cast<std::int64_t>(step), trace[step].finite) ==
          (trace[step].finite ? Verdict::Apply : Verdict::Skip));
    CHECK(policy->loss_scale() == trace[step].scale);
    SavedState saved;
    policy->save(saved);
    CHECK(saved.integer("loss_scale_hysteresis") == trace[step].hysteresis);
    CHECK(saved.number("loss_scale") == trace[step].scale);
  }
}

}  // namespace

TEST_CASE("fp16: number formats and the first scale") {
  const Policy fp16(library());
  CHECK(fp16->dtypes({}) == strata::DTypes{at::kHalf, at::kFloat, at::kFloat, at::kFloat});
  CHECK(fp16->activation() == at::kHalf);
  CHECK(fp16->loss_scale() == 65536.0);
  const OptionTexts lean{{"accumulation", "fp16"}, {"reduction", "fp16"}};
  CHECK(Policy(library(), lean)->dtypes({}) == strata::DTypes{at::kHalf, at::kHalf, at::kHalf, at::kFloat});
  CHECK_THROWS_WITH(Policy(library(), with(trace_options, "initial_scale_power", "0")),
                    Catch::Contains("initial_scale_power 0") && Catch::Contains("below min_loss_scale 2"));
}

TEST_CASE("fp16: scripted overflows give the scale, the counter and the verdict of every step") {
  Policy policy(library(), trace_options);
  check_trace(policy, scale_trace);
  CHECK(judge(policy, 27, overflowed) == Verdict::Stop);
  CHECK_THAT(policy->stop_reason(), Catch::Contains("step 27") && Catch::Contains("min_loss_scale 2"));
}

TEST_CASE("fp16: a run resumed before its first step equals one never stopped") {
  for (std::size_t begin = 0; begin < scale_trace.size(); ++begin) {
    Policy before(library(), trace_options);
    for (std::size_t step = 0; step < begin; ++step)
      judge(before, static_cast<std::int64_t>(step), scale_trace[step].finite);
    SavedState saved;
    before->save(saved);
    Policy after(library(), trace_options);
    after->load(saved, after->state_version());
    check_trace(after, scale_trace, begin);
    CHECK(judge(after, 27, overflowed) == Verdict::Stop);
  }
}

TEST_CASE("fp16: a run resumed with a smaller hysteresis has no more overflows left than that") {
  Policy before(library(), with(trace_options, "hysteresis", "3"));
  SavedState saved;
  before->save(saved);
  Policy after(library(), with(trace_options, "hysteresis", "1"));
  after->load(saved, after->state_version());
  judge(after, 0, overflowed);
  CHECK(after->loss_scale() == 8);
}

TEST_CASE("fp16: with consecutive_hysteresis a finite step refills the counter") {
  Policy policy(library(), {{"consecutive_hysteresis", "true"}});
  check_trace(policy, {{overflowed, 65536, 1},
                       {all_finite, 65536, 2},
                       {overflowed, 65536, 1},
                       {overflowed, 32768, 1},
                       {overflowed, 16384, 1},
                       {all_finite, 16384, 2},
                       {overflowed, 16384, 1}});
  Policy other(library());
  check_trace(other, {{overflowed, 65536, 1},
                      {all_finite, 65536, 1},
                      {overflowed, 32768, 1},
                      {overflowed, 16384, 1},
                      {overflowed, 8192, 1},
                      {all_finite, 8192, 1},
                      {overflowed, 4096, 1}});
}

TEST_CASE("fp16: hysteresis 1 halves at the first overflow, hysteresis 3 at the third") {
  Policy one(library(), {{"hysteresis", "1"}});
  check_trace(one, {{overflowed, 32768, 1}, {all_finite, 32768, 1}, {overflowed, 16384, 1}});
  Policy three(library(), {{"hysteresis", "3"}});
  check_trace(three, {{overflowed, 65536, 2}, {overflowed, 65536, 1}, {overflowed, 32768, 1}, {overflowed, 16384, 1}});
}

TEST_CASE("fp16: the defaults double at step 1000, counted from 0, and stop a run that only overflows at scale 1") {
  Policy policy(library());
  for (std::int64_t step = 0; step < 1000; ++step) judge(policy, step, all_finite);
  CHECK(policy->loss_scale() == 65536.0);
  judge(policy, 1000, all_finite);
  CHECK(policy->loss_scale() == 131072.0);
  std::int64_t step = 1001;
  while (judge(policy, step, overflowed) == Verdict::Skip) ++step;
  CHECK(step == 1001 + 18);  // one forgiven, 17 halvings
  CHECK(policy->loss_scale() == 1.0);
}

TEST_CASE("fp16: the scale stays a number that an fp32 loss can be multiplied by") {
  Policy policy(library(), {{"loss_scale_window", "1"}});
  for (std::int64_t step = 0; step < 3000; ++step) CHECK(judge(policy, step, all_finite) == Verdict::Apply);
  CHECK(policy->loss_scale() == std::ldexp(1.0, 127));
}

TEST_CASE("fp16: a static scale never moves, and too many skips in a row stop the run") {
  Policy policy(library(), {{"loss_scale", "1024"}, {"max_consecutive_skips", "3"}});
  for (std::int64_t step = 0; step < 2002; ++step) CHECK(judge(policy, step, all_finite) == Verdict::Apply);
  for (std::int64_t step = 2002; step < 2005; ++step) CHECK(judge(policy, step, overflowed) == Verdict::Skip);
  CHECK(policy->loss_scale() == 1024.0);
  CHECK(judge(policy, 2005, overflowed) == Verdict::Stop);
  CHECK_THAT(policy->stop_reason(), Catch::Contains("4 consecutive steps") && Catch::Contains("max_consecutive_skips"));
}
