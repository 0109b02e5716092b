#include "data/documents.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace strata::data {

DocumentSamples::DocumentSamples(const TokenSource& source, std::int64_t seq_len, std::int64_t end,
                                 const Progress& progress)
    : seq_len_(seq_len), end_(end) {
  strata_check(seq_len >= 1, "DocumentSamples: seq_len is at least 1");
  std::vector<std::int64_t> block(std::size_t{1} << 16);
  std::int64_t document = 0;
  for (std::int64_t first = 0; first < source.token_count(); first += std::ssize(block)) {
    block.resize(static_cast<std::size_t>(std::min(std::ssize(block), source.token_count() - first)));
    source.copy(first, std::ssize(block), block.data());
    for (auto found = std::ranges::find(block, end); found != block.end(); found = std::find(found, block.end(), end)) {
      const std::int64_t behind = first + (++found - block.begin());
      add(source, document, behind);
      document = behind;
    }
    if (progress) progress(first + std::ssize(block));
  }
  if (document == 0)
    throw UserError(Place{source.path()},
                    "the document end, token {}, does not occur, so the whole file is one document; give the id that "
                    "ends the file's documents, or use documents: packed",
                    end);
  add(source, document, source.token_count());
  if (count() == 0)
    throw UserError(Place{source.path()},
                    "no document has a target: each is empty, has a single token or is masked; check that token {}, "
                    "the document end, is an id of the file's tokenizer",
                    end);
}

// Tokens [first, last) of the row are a document.
void DocumentSamples::add(const TokenSource& source, std::int64_t first, std::int64_t last) {
  const std::int64_t before = targets_;
  std::vector<std::uint8_t> is_target(source.has_mask() ? static_cast<std::size_t>(std::min(seq_len_, last - first))
                                                        : 0);
  for (std::int64_t piece = first; piece < last - 1; piece += seq_len_) {
    std::int64_t targets = std::min(seq_len_, last - 1 - piece);
    if (source.has_mask()) {
      source.copy_mask(piece + 1, targets, is_target.data());
      targets = std::count(is_target.begin(), is_target.begin() + targets, 1);
    }
    if (targets == 0) continue;
    first_.push_back(piece);
    targets_ += targets;
  }
  documents_ += targets_ > before;
}

// No piece begins with an end, so the first end in it, if any, is its document's.
void DocumentSamples::read(const TokenSource& source, std::int64_t sample, std::int64_t* tokens,
                           std::uint8_t* is_target) const {
  const std::int64_t first = first_.at(static_cast<std::size_t>(sample));
  const std::int64_t there = std::min(seq_len_ + 1, source.token_count() - first);
  source.copy(first, there, tokens);
  source.copy_mask(first, there, is_target);
  const std::int64_t before_end = std::find(tokens, tokens + there, end_) - tokens;
  const std::int64_t own = std::min(before_end + 1, there);
  std::fill(tokens + own, tokens + seq_len_ + 1, end_);
  std::fill(is_target + own, is_target + seq_len_ + 1, std::uint8_t{0});
}

}  // namespace strata::data
