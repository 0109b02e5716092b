#include "tools/sample/written_tokens.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <charconv>

namespace strata::sample {

namespace {

constexpr std::int64_t bytes = 256;

std::vector<std::int64_t> numbers_in(const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    std::int64_t number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 0 || (after != end && *after != ',' && *after != ' '))
      throw UserError("--prompt-tokens is '{}'; it must be numbers from 0 on, separated by commas", text);
    numbers.push_back(number);
    at = after;
  }
  return numbers;
}

}  // namespace

WrittenTokens::WrittenTokens(const std::string& tokenizer) : name_(tokenizer.empty() ? "bytes" : tokenizer) {
  if (!tokenizer.empty()) tokenizer_ = std::make_unique<tokenizer::Tokenizer>(tokenizer);
}

WrittenTokens WrittenTokens::as_numbers() {
  WrittenTokens written;
  written.name_ = "numbers";
  written.numbers_ = true;
  return written;
}

std::vector<std::int64_t> WrittenTokens::read(const std::string& text) const {
  if (numbers_) return numbers_in(text);
  std::vector<std::uint32_t> ids;
  if (tokenizer_) {
    ids = tokenizer_->before();
    tokenizer::Encoder encoder(*tokenizer_);
    encoder.encode(text, ids);
    if (encoder.left_out() > 0)
      throw UserError(
          "{} bytes of the prompt have no token in {}; write it with other characters, or take the tokenizer that the "
          "model's tokens were made with",
          encoder.left_out(), name_);
  } else {
    std::ranges::transform(text, std::back_inserter(ids), [](char byte) { return static_cast<unsigned char>(byte); });
  }
  return {ids.begin(), ids.end()};
}

std::string WrittenTokens::write(std::int64_t token) const {
  if (numbers_) return format(" {}", token);
  if (!tokenizer_) return std::string(1, static_cast<char>(token));
  const std::vector<std::uint32_t> ids{static_cast<std::uint32_t>(token)};
  return tokenizer_->decode(ids, false);
}

std::optional<std::int64_t> WrittenTokens::known() const {
  if (numbers_) return {};
  return tokenizer_ ? tokenizer_->vocabulary_size() : bytes;
}

std::vector<std::string> WrittenTokens::notes() const {
  return tokenizer_ ? tokenizer_->notes() : std::vector<std::string>();
}

std::optional<std::int64_t> WrittenTokens::document_end() const {
  if (tokenizer_) return tokenizer_->document_end();
  return numbers_ ? std::nullopt : std::optional<std::int64_t>(0);
}

}  // namespace strata::sample
