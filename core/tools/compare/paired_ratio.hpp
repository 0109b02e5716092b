// Is one run slower than another? From pairs of times that were measured close together, without assuming how noise is
// distributed.
#pragma once
#include <vector>

namespace strata::report {

// Time / baseline's time.
struct PairedRatio {
  double ratio = 1.0;  // the Hodges-Lehmann estimate: the median of the means of all pairs of ratios, in logarithms
  double low = 1.0;    // the interval that holds the true ratio with 99 % confidence
  double high = 1.0;
  bool slower() const { return low > 1.0; }
  bool faster() const { return high < 1.0; }
};

// Fewer pairs cannot show a difference with that confidence, whatever they are.
inline constexpr int smallest_pairs = 8;

// `times[i]` and `baseline[i]` were measured in the same round. The interval is the one of Wilcoxon's signed-rank test
// at 1 % (Hollander & Wolfe, Nonparametric Statistical Methods, 3.3), computed exactly: a comparison of a run with
// itself shows a difference in 1 of 100 cases. Throws Bug for fewer than smallest_pairs pairs, unequal counts or times
// that are not positive.
PairedRatio paired_ratio(const std::vector<double>& times, const std::vector<double>& baseline);

}  // namespace strata::report
