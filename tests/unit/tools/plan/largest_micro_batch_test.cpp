#include "tools/plan/largest_micro_batch.hpp"

#include <algorithm>

#include "catch.hpp"

using namespace strata::cli;

TEST_CASE("The largest micro-batch fits and one more does not") {
  int calls = 0;
  const auto check = [&](const std::function<std::int64_t(std::int64_t)>& needed, std::int64_t budget) {
    calls = 0;
    const MicroBatchFit fit = largest_micro_batch(
        [&](std::int64_t samples) {
          ++calls;
          return needed(samples);
        },
        budget);
    INFO("budget " << budget << ", samples " << fit.samples);
    CHECK(calls <= 40);
    if (fit.samples == 0) {
      CHECK(needed(1) > budget);
      return;
    }
    CHECK(fit.bytes == needed(fit.samples));
    CHECK(fit.bytes <= budget);
    if (fit.samples == most_samples) {
      CHECK(fit.next_bytes == 0);
      return;
    }
    CHECK(fit.next_bytes == needed(fit.samples + 1));
    CHECK(fit.next_bytes > budget);
  };
  const auto line = [](std::int64_t samples) { return 1000 + 17 * samples; };
  const auto steps = [](std::int64_t samples) {
    return 1000 + 170 * (samples / 7);
  };  // as buffers of a size class grow
  const auto bend = [](std::int64_t samples) { return std::max<std::int64_t>(5000, 11 * samples * samples); };
  const auto flat = [](std::int64_t) { return std::int64_t{1000}; };
  for (const std::int64_t budget : {0, 999, 1000, 1016, 1017, 1018, 1034, 1500, 5000, 123456, 1 << 30}) {
    check(line, budget);
    check(steps, budget);
    check(bend, budget);
    check(flat, budget);
  }
  calls = 0;
  largest_micro_batch([&](std::int64_t samples) { return ++calls, line(samples); }, 60000);
  CHECK(calls <= 6);  // a line is found in a few dry runs
}
