// How the tokens of a text are read and written.
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
  // By this tokenizer.json, or that of this folder; where it is empty as bytes, as `strata data pack` makes them
  // without one. Throws UserError.
  explicit WrittenTokens(const std::string& tokenizer);
  // As their numbers, separated by commas or spaces.
  static WrittenTokens as_numbers();

  // With what the tokenizer's template puts in front of a text. Throws UserError for what are no numbers.
  std::vector<std::int64_t> read(const std::string& text) const;
  // Its bytes; a number has a space in front. Throws UserError for a token that the tokenizer does not have.
  std::string write(std::int64_t token) const;
  bool numbers() const { return numbers_; }

  // Tokens from this one on cannot be written; nothing: all can.
  std::optional<std::int64_t> known() const;
  // "bytes", or the tokenizer's file.
  const std::string& name() const { return name_; }
  // Keys of the tokenizer's file that are not obeyed, each with its value and the reason.
  std::vector<std::string> notes() const;
  // With which texts end, where it shows: the tokenizer's token; 0 of bytes, which stands in no text.
  std::optional<std::int64_t> document_end() const;

 private:
  WrittenTokens() = default;

  std::string name_;
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer_;
  bool numbers_ = false;
};

}  // namespace strata::sample
