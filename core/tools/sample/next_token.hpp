// Choice of the next token from the model's logits.
#pragma once
#include <cstdint>
#include <span>

namespace strata::sample {

struct Choice {
  double temperature = 0.8;  // divisor of the logits; 0: always the most likely token
  double top_p = 0.95;       // sample from the most likely tokens that together have this probability; 1: no limit
  std::int64_t top_k = 0;    // sample from the k most likely tokens; 0: no limit
  std::uint64_t seed = 1;
};

// Returns the next token, a function of the arguments alone; `position`, the token's place in the text, selects the
// random draw. Applies top_k, then top_p, with probabilities at the temperature; of equal logits the smaller token
// ranks higher. The draw goes through the tokens in the order of their numbers, so that logits of other layouts, which
// differ by rounding, rarely give another token. Throws UserError if no logit is finite or one is NaN.
std::int64_t next_token(std::span<const float> logits, const Choice& choice, std::int64_t position);

// Returns the probability of all tokens from `first` on.
double probability_from(std::span<const float> logits, std::int64_t first);

}  // namespace strata::sample
