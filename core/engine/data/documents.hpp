// Samples that hold tokens of one document only: `data.documents: separate`.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>

#include "data/token_source.hpp"

namespace strata::data {

// Samples of single documents. A document begins at the row's begin or after an end token, and ends with the next end
// token or the row's end. A document of n tokens has n - 1 targets and ceil((n - 1) / seq_len) samples: piece k begins
// at its token k * seq_len, like windows of a row, and the last one is padded. A piece without a target is no sample,
// such as an end token after another or what the data's mask leaves out. Takes 8 bytes per sample. [any rank]
class DocumentSamples {
 public:
  // Progress function, called with the number of tokens read; may be empty.
  using Progress = std::function<void(std::int64_t tokens)>;

  // Reads the whole row. Throws UserError if `end` never occurs, or no document has a target; otherwise as
  // TokenSource::copy does.
  DocumentSamples(const TokenSource& source, std::int64_t seq_len, std::int64_t end, const Progress& progress = {});

  std::int64_t count() const { return std::ssize(first_); }
  std::int64_t documents() const { return documents_; }  // documents with a sample
  std::int64_t targets() const { return targets_; }      // targets that count, in all samples
  std::int64_t end() const { return end_; }

  // Writes seq_len + 1 tokens of sample `sample` of `source`, the row that was read: the piece, then end tokens; and
  // for each token 1 if it is a target that counts in the loss, 0 in the padding and where the data's mask leaves it
  // out.
  void read(const TokenSource& source, std::int64_t sample, std::int64_t* tokens, std::uint8_t* is_target) const;

 private:
  void add(const TokenSource& source, std::int64_t first, std::int64_t last);

  std::int64_t seq_len_;
  std::int64_t end_;
  std::int64_t documents_ = 0;
  std::int64_t targets_ = 0;
  std::deque<std::int64_t> first_;  // place of each sample's first token; grows without copies
};

}  // namespace strata::data
