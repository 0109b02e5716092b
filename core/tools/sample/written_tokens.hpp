// Reads and writes the tokens of a text.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/tokenizer/tokenizer.hpp"

namespace strata::sample {

class WrittenTokens {
 public:
  // Uses the tokenizer.json at this path or in this folder; if empty, tokens are bytes, as from `strata data pack`.
  // Throws UserError.
  explicit WrittenTokens(const std::string& tokenizer);
  // Takes token ids, separated by commas or spaces.
  static WrittenTokens as_numbers();

  // Returns the tokens of a text, preceded by those of the tokenizer's template. Throws UserError for text that is not
  // a list of ids.
  std::vector<std::int64_t> read(const std::string& text) const;
  // Returns the bytes of a token; of an id, its digits after a space. Throws UserError for a token that the tokenizer
  // lacks.
  std::string write(std::int64_t token) const;
  bool numbers() const { return numbers_; }

  // Returns the first token without a text; empty if all tokens have one.
  std::optional<std::int64_t> known() const;
  // Returns "bytes", or the tokenizer's file.
  const std::string& name() const { return name_; }
  // Returns the keys of the tokenizer's file that are not used, each with its value and the reason.
  std::vector<std::string> notes() const;
  // Returns the token that ends a text, if known: the tokenizer's; for bytes 0, which does not occur in text.
  std::optional<std::int64_t> document_end() const;

 private:
  WrittenTokens() = default;

  std::string name_;
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer_;
  bool numbers_ = false;
};

}  // namespace strata::sample
