// Decides from pairs of times measured close together whether one run is slower than another, without assumptions about
// the noise.
#pragma once
#include <vector>

namespace strata::compare {

// The ratio of a time to the baseline's time.
struct PairedRatio {
  double ratio = 1.0;  // Hodges-Lehmann estimate: the median of the means of all pairs of log ratios
  double low = 1.0;    // 99 % confidence interval
  double high = 1.0;
  bool slower() const { return low > 1.0; }
  bool faster() const { return high < 1.0; }
};

// Smallest number of pairs that can show a difference with that confidence.
inline constexpr int smallest_pairs = 8;

// `times[i]` and `baseline[i]` were measured in the same round. The interval is that of Wilcoxon's signed-rank test at
// 1 % (Hollander & Wolfe, Nonparametric Statistical Methods, 3.3), computed exactly: a comparison of a run with itself
// shows a difference in 1 of 100 cases. Throws Bug for fewer than smallest_pairs pairs, unequal counts or times that
// are not positive.
PairedRatio paired_ratio(const std::vector<double>& times, const std::vector<double>& baseline);

}  // namespace strata::compare
