#include "tools/compare/paired_ratio.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "catch.hpp"

using strata::compare::paired_ratio;
using strata::compare::PairedRatio;

namespace {

// Times of `count` rounds of a machine that drifts by half over the rounds, with noise of `noise` on each time.
struct Rounds {
  std::vector<double> times;
  std::vector<double> baseline;
  Rounds(std::mt19937& random, int count, double slowdown, double noise) {
    std::normal_distribution<double> draw(0.0, noise);
    for (int round = 0; round < count; ++round) {
      const double machine = 1.0 + 0.5 * round / count;
      times.push_back(machine * slowdown * std::exp(draw(random)));
      baseline.push_back(machine * std::exp(draw(random)));
    }
  }
};

}  // namespace

TEST_CASE("the interval's ends are the Walsh averages that the test's tables name") {
  // Wilcoxon's critical values at 1 %, two-sided: 0 for 8 pairs, 3 for 10.
  const std::vector<double> ones(8, 1.0);
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) times.push_back(std::exp(0.01 * i));
  const PairedRatio eight = paired_ratio(times, ones);
  CHECK(eight.low == Approx(1.0));
  CHECK(eight.high == Approx(std::exp(0.07)));
  CHECK(eight.ratio == Approx(std::exp(0.035)));
  CHECK_FALSE(eight.slower());  // 1 is in it

  std::vector<double> logarithms;
  for (int i = 0; i < 10; ++i) logarithms.push_back(0.001 * i * i - 0.004);
  std::vector<double> averages;
  for (std::size_t i = 0; i < 10; ++i)
    for (std::size_t j = i; j < 10; ++j) averages.push_back((logarithms[i] + logarithms[j]) / 2);
  std::sort(averages.begin(), averages.end());
  times.clear();
  for (const double logarithm : logarithms) times.push_back(std::exp(logarithm));
  const PairedRatio ten = paired_ratio(times, std::vector<double>(10, 1.0));
  CHECK(ten.low == Approx(std::exp(averages[3])));
  CHECK(ten.high == Approx(std::exp(averages[51])));
}

TEST_CASE("a run beside itself shows a difference in 1 of 100 cases") {
  std::mt19937 random(3);
  int differences = 0;
  for (int i = 0; i < 4000; ++i) {
    const Rounds rounds(random, 10, 1.0, 0.02);
    const PairedRatio ratio = paired_ratio(rounds.times, rounds.baseline);
    if (ratio.slower() || ratio.faster()) ++differences;
  }
  CHECK(differences > 15);  // 39 are expected, give or take 6
  CHECK(differences < 65);
}

TEST_CASE("a slowdown of 3 % is seen through noise of 1 %") {
  std::mt19937 random(4);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const Rounds rounds(random, 10, 1.03, 0.01);
    const PairedRatio ratio = paired_ratio(rounds.times, rounds.baseline);
    CHECK_FALSE(ratio.faster());
    if (ratio.slower()) ++found;
  }
  CHECK(found > 950);
}

TEST_CASE("one round that something disturbed does not decide") {
  const std::vector<double> ones(10, 1.0);
  std::vector<double> times(10, 1.0);
  times[4] = 7.0;
  const PairedRatio ratio = paired_ratio(times, ones);
  CHECK_FALSE(ratio.slower());
  CHECK(ratio.ratio == Approx(1.0));
}

TEST_CASE("too few pairs, unequal counts and times of nothing are refused") {
  const std::vector<double> seven(7, 1.0);
  const std::vector<double> eight(8, 1.0);
  CHECK_THROWS_AS(paired_ratio(seven, seven), strata::Bug);
  CHECK_THROWS_AS(paired_ratio(eight, seven), strata::Bug);
  CHECK_THROWS_AS(paired_ratio(std::vector<double>(8, 0.0), eight), strata::Bug);
}
