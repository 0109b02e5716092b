#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/megatron_index.hpp"
#include "data/token_file.hpp"

namespace strata::data {

struct TokenStatistics {
  std::int64_t smallest = 0;  // ids
  std::int64_t largest = 0;
  std::int64_t distinct = 0;
  // Of the id frequencies, nats a token: the loss of the best model that looks at no context.
  double unigram_entropy = 0.0;
};

// A data set, whatever its format: one long row of token ids in one file or several, the next one's tokens behind the
// last one's. open_tokens() makes one. [any rank]
class TokenSource {
 public:
  // All files of one type. `index`: where the sequences of the one file begin, for formats that say it; else null.
  TokenSource(std::string format, std::string path, std::vector<TokenFile> files,
              std::unique_ptr<const MegatronIndex> index = nullptr);

  const std::string& format() const { return format_; }  // as in data.format
  const std::string& path() const { return path_; }      // as it was given: a file, a pattern, a prefix
  const std::vector<TokenFile>& files() const { return files_; }
  const MegatronIndex* index() const { return index_.get(); }
  TokenType type() const { return files_.front().type(); }
  std::int64_t token_count() const { return first_.back(); }

  // floor((token_count - 1) / seq_len): how many samples of seq_len inputs, each followed by one more token as the last
  // target. Throws UserError when there is not one.
  std::int64_t sample_count(std::int64_t seq_len) const;

  // Widens tokens [first, first + count) of the row into `destination`. Throws EnvironmentError when a file of theirs
  // was cut after it was opened.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

  // Reads tokens [first, end) of the row (gigabytes a second from the page cache). Throws UserError that names the file
  // and the first token whose id is negative or not below `vocabulary`.
  void check_vocabulary(std::int64_t vocabulary, std::int64_t first, std::int64_t end) const;
  void check_vocabulary(std::int64_t vocabulary) const { check_vocabulary(vocabulary, 0, token_count()); }
  // Reads everything. `progress(tokens so far)` is called now and then.
  TokenStatistics statistics(const std::function<void(std::int64_t)>& progress = {}) const;

 private:
  std::string format_;
  std::string path_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_;  // of each file, the place of its first token in the row; then the row's length
  std::unique_ptr<const MegatronIndex> index_;
};

}  // namespace strata::data
