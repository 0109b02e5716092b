// Samples that hold tokens of one document only: `data.documents: separate`.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>

#include "data/token_source.hpp"

namespace strata::data {

// A document is what follows the row's begin or an end token, up to and with the next end token or the row's end. One
// of n tokens has n - 1 targets and becomes ceil((n - 1) / seq_len) samples: piece k begins at its token k * seq_len,
// as windows of a row do, and the last one is filled up. A document without a target, so an end right behind another
// one, has no sample. 8 bytes a sample. [any rank]
class DocumentSamples {
 public:
  // Called with how many tokens are read; may be empty.
  using Progress = std::function<void(std::int64_t tokens)>;

  // Reads the whole row. Throws UserError where `end` never occurs, or no document has a target; else as
  // TokenSource::copy does.
  DocumentSamples(const TokenSource& source, std::int64_t seq_len, std::int64_t end, const Progress& progress = {});

  std::int64_t count() const { return std::ssize(first_); }
  std::int64_t documents() const { return documents_; }  // that have a sample
  std::int64_t targets() const { return targets_; }      // that count, of all samples
  std::int64_t end() const { return end_; }

  // Writes seq_len + 1 tokens of sample `sample` of `source`, the row that was read: the piece, then end tokens.
  // Returns how many of its targets count: the first ones.
  std::int64_t read(const TokenSource& source, std::int64_t sample, std::int64_t* destination) const;

 private:
  void add(std::int64_t first, std::int64_t last);

  std::int64_t seq_len_;
  std::int64_t end_;
  std::int64_t documents_ = 0;
  std::int64_t targets_ = 0;
  std::deque<std::int64_t> first_;  // of each sample, the place of its first token; grows without being copied
};

}  // namespace strata::data
