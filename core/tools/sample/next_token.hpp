// Which token comes next, by what the model says of each.
#pragma once
#include <cstdint>
#include <span>

namespace strata::sample {

struct Choice {
  double temperature = 0.8;  // that logits are divided by; 0: the most likely token always
  double top_p = 0.95;       // of the most likely tokens as many as have this probability together; 1: all
  std::int64_t top_k = 0;    // of the most likely tokens so many; 0: all
  std::uint64_t seed = 1;
};

// A function of its arguments alone: `position` is the token's in the text, and another draw is made for each. Of equal
// logits the smaller token is more likely. First top_k, then top_p; probabilities are those at the temperature. The
// draw takes tokens in the order of their numbers, so that logits that differ by rounding, as those of other layouts
// do, give another token about as seldom as they differ. Throws UserError where no logit is finite or one is NaN.
std::int64_t next_token(std::span<const float> logits, const Choice& choice, std::int64_t position);

// The probability of the tokens from `first` on.
double probability_from(std::span<const float> logits, std::int64_t first);

}  // namespace strata::sample
