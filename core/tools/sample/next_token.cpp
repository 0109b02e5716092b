#include "tools/sample/next_token.hpp"

#include <strata/error.hpp>
#include <strata/split_mix.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace strata::sample {

namespace {

// The first of the largest.
std::size_t most_likely(std::span<const float> logits) {
  const auto nan = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit); });
  const auto best = std::ranges::max_element(logits);
  if (nan != logits.end() || !std::isfinite(*best))
    throw UserError("the model's logits are not finite, such as {}; its training diverged: use an earlier checkpoint",
                    nan != logits.end() ? *nan : *best);
  return static_cast<std::size_t>(best - logits.begin());
}

// In proportion to the probabilities; the most likely token has 1.
std::vector<double> weights_of(std::span<const float> logits, double temperature) {
  const double largest = logits[most_likely(logits)];
  std::vector<double> weights(logits.size());
  std::ranges::transform(logits, weights.begin(),
                         [&](float logit) { return std::exp((logit - largest) / temperature); });
  return weights;
}

// The least likely ones become 0.
void keep_likely(std::vector<double>& weights, const Choice& choice) {
  if (choice.top_k == 0 && choice.top_p >= 1.0) return;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  std::size_t kept = weights.size();
  if (choice.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(choice.top_k));
  double all = 0.0, sum = 0.0;
  for (std::size_t i = 0; i < kept; ++i) all += weights[order[i]];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (i >= kept || (i > 0 && sum >= choice.top_p * all)) weights[order[i]] = 0.0;
    sum += weights[order[i]];
  }
}

// In [0, 1), by both numbers: draws of neighbouring positions have nothing in common.
double draw(std::uint64_t seed, std::int64_t position) {
  return static_cast<double>(split_mix(split_mix(seed) ^ static_cast<std::uint64_t>(position)) >> 11) * 0x1p-53;
}

}  // namespace

std::int64_t next_token(std::span<const float> logits, const Choice& choice, std::int64_t position) {
  if (choice.temperature == 0.0) return static_cast<std::int64_t>(most_likely(logits));
  std::vector<double> weights = weights_of(logits, choice.temperature);
  keep_likely(weights, choice);
  double left = draw(choice.seed, position) * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t token = most_likely(logits);  // where rounding leaves more than there is
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (left < weights[i]) {
      token = i;
      break;
    }
    left -= weights[i];
  }
  return static_cast<std::int64_t>(token);
}

double probability_from(std::span<const float> logits, std::int64_t first) {
  const std::vector<double> weights = weights_of(logits, 1.0);
  const auto begin = weights.begin() + std::min(first, std::ssize(weights));
  return std::accumulate(begin, weights.end(), 0.0) / std::accumulate(weights.begin(), weights.end(), 0.0);
}

}  // namespace strata::sample
