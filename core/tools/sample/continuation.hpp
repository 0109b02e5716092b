// How a text goes on, token by token.
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
  std::int64_t tokens = 100;                 // at most so many
  std::int64_t seen = 1;                     // of the text the model sees at most so many, the last ones
  std::optional<std::int64_t> document_end;  // ends the text, and is not a part of it
};

struct Continuation {
  std::vector<std::int64_t> tokens;
  bool ended = false;  // by the document's end
};

// fp32 [vocabulary], of the token that follows these.
using NextLogits = std::function<at::Tensor(std::span<const std::int64_t> text)>;

// `see` gets each token as soon as it is chosen. Tokens that cannot be written are never chosen; where the model holds
// one of them for more likely than not, the weights and what writes the tokens do not belong together: UserError.
// The prompt has a token at least.
Continuation continuation_of(std::vector<std::int64_t> prompt, const ContinuationSettings& settings,
                             const WrittenTokens& written, const NextLogits& logits_of,
                             const std::function<void(std::int64_t token)>& see);

}  // namespace strata::sample
