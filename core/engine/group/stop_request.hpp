// Signals that stop a run. Each rank counts its own; the sums of the counts are equal on all ranks.
#pragma once
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::group {

inline constexpr std::array<int, 3> stop_signals{SIGINT, SIGTERM, SIGHUP};

// Returns counts in the order of stop_signals: 1 for `signal`; all 0 for 0, no request.
inline std::vector<std::int64_t> stop_counts(int signal) {
  std::vector<std::int64_t> counts;
  for (const int one : stop_signals) counts.push_back(one == signal ? 1 : 0);
  return counts;
}

// Returns the first of stop_signals that any rank counted, or 0.
template <typename Number>
int counted_signal(const Number* counts) {
  for (std::size_t i = 0; i < stop_signals.size(); ++i)
    if (counts[i] > 0) return stop_signals[i];
  return 0;
}

}  // namespace strata::group
