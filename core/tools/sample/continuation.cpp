#include "tools/sample/continuation.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <string>

#include "text/formatted.hpp"

namespace strata::sample {

namespace {

// Those of tokens that can be written.
std::span<const float> of_known(std::span<const float> logits, const WrittenTokens& written) {
  const std::int64_t known = std::min(written.known().value_or(std::ssize(logits)), std::ssize(logits));
  if (const double other = probability_from(logits, known); other > 0.5)
    throw UserError("the next token is {} or above with probability {}, and {}{}", known,
                    text::formatted("%.3f", other), written.name(),
                    written.name() == "bytes"
                        ? " are 0 to 255; give the --tokenizer that its tokens were made with, or weights that have "
                          "learned bytes"
                        : " has no such token; give the tokenizer that the model's tokens were made with");
  return logits.first(static_cast<std::size_t>(known));
}

}  // namespace

Continuation continuation_of(std::vector<std::int64_t> text, const ContinuationSettings& settings,
                             const WrittenTokens& written, const NextLogits& logits_of,
                             const std::function<void(std::int64_t token)>& see) {
  Continuation made;
  while (std::ssize(made.tokens) < settings.tokens && !made.ended) {
    const std::int64_t seen = std::min(settings.seen, std::ssize(text));
    const at::Tensor logits = logits_of(std::span(text).last(static_cast<std::size_t>(seen)));
    const std::span<const float> all(logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel()));
    const std::int64_t token = next_token(of_known(all, written), settings.choice, std::ssize(text));
    made.ended = token == settings.document_end;
    if (made.ended) break;
    text.push_back(token);
    made.tokens.push_back(token);
    see(token);
  }
  return made;
}

}  // namespace strata::sample
