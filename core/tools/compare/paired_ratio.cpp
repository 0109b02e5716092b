#include "tools/compare/paired_ratio.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace strata::compare {

namespace {

// The largest c such that, without a difference, the signed-rank statistic of n pairs is at most c with probability at
// most `tail`; -1 if there is none. Counts the subsets of {1, ..., n} by their sum.
int lower_critical(std::size_t n, double tail) {
  const std::size_t largest = n * (n + 1) / 2;
  std::vector<double> probability(largest + 1, 0.0);
  probability[0] = 1.0;
  for (std::size_t rank = 1; rank <= n; ++rank)
    for (std::size_t sum = largest + 1; sum-- > 0;)
      probability[sum] = 0.5 * (probability[sum] + (sum >= rank ? probability[sum - rank] : 0.0));
  double below = 0.0;
  int critical = -1;
  for (std::size_t sum = 0; sum <= largest; ++sum) {
    below += probability[sum];
    if (below > tail) break;
    critical = static_cast<int>(sum);
  }
  return critical;
}

}  // namespace

PairedRatio paired_ratio(const std::vector<double>& times, const std::vector<double>& baseline) {
  strata_check(times.size() == baseline.size(), "a ratio needs pairs of times");
  strata_check(times.size() >= static_cast<std::size_t>(smallest_pairs), "a ratio needs more pairs of times");
  std::vector<double> logarithms;
  for (std::size_t i = 0; i < times.size(); ++i) {
    strata_check(times[i] > 0.0 && baseline[i] > 0.0, "times are positive");
    logarithms.push_back(std::log(times[i] / baseline[i]));
  }
  std::vector<double> means;  // Walsh averages
  for (std::size_t i = 0; i < logarithms.size(); ++i)
    for (std::size_t j = i; j < logarithms.size(); ++j) means.push_back(0.5 * (logarithms[i] + logarithms[j]));
  std::sort(means.begin(), means.end());
  // At most `critical` means on the other side of 0 make the test reject; so the next one bounds the interval.
  const auto left_out = static_cast<std::size_t>(lower_critical(logarithms.size(), 0.005));
  const std::size_t count = means.size();
  const double middle = 0.5 * (means[(count - 1) / 2] + means[count / 2]);
  return {std::exp(middle), std::exp(means[left_out]), std::exp(means[count - 1 - left_out])};
}

}  // namespace strata::compare
