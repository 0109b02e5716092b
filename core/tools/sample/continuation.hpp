// Generates the continuation of a text, token by token.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tools/sample/next_token.hpp"
#include "tools/sample/written_tokens.hpp"

namespace strata::sample {

struct ContinuationSettings {
  Choice choice;
  std::int64_t tokens = 100;  // maximum number of tokens to generate
  std::int64_t seen = 1;      // maximum number of tokens, the last ones of the text, that the model reads
  std::optional<std::int64_t> document_end;  // token that ends the text; not part of it
};

struct Continuation {
  std::vector<std::int64_t> tokens;
  bool ended = false;  // true: the document end was generated
};

// Returns the logits of the token that follows a text, fp32 [vocabulary].
using NextLogits = std::function<at::Tensor(std::span<const std::int64_t> text)>;

// Generates a continuation and passes each token to `see` when it is chosen. Tokens without a text are never chosen;
// throws UserError if such a token has a probability above 0.5, because the weights then belong to another tokenizer.
// The prompt has at least one token.
Continuation continuation_of(std::vector<std::int64_t> prompt, const ContinuationSettings& settings,
                             const WrittenTokens& written, const NextLogits& logits_of,
                             const std::function<void(std::int64_t token)>& see);

}  // namespace strata::sample
