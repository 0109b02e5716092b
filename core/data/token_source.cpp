#include "data/token_source.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

namespace strata::data {
namespace {

// Counts of ids: an array for the small ones that nearly all files consist of, a table for the rest.
class Histogram {
 public:
  template <typename Token>
  void add(const Token* tokens, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<std::int64_t>(tokens[i]);
      if (id >= 0 && id < std::ssize(small_)) {
        ++small_[static_cast<std::size_t>(id)];
      } else {
        ++large_[id];
      }
    }
  }

  TokenStatistics statistics(std::int64_t total) const {
    TokenStatistics result;
    result.smallest = INT64_MAX;
    result.largest = INT64_MIN;
    const auto take = [&](std::int64_t id, std::int64_t count) {
      const double share = static_cast<double>(count) / static_cast<double>(total);
      result.unigram_entropy -= share * std::log(share);
      result.smallest = std::min(result.smallest, id);
      result.largest = std::max(result.largest, id);
      ++result.distinct;
    };
    for (std::size_t id = 0; id < small_.size(); ++id) {
      if (small_[id] > 0) take(static_cast<std::int64_t>(id), small_[id]);
    }
    for (const auto& [id, count] : large_) take(id, count);
    return result;
  }

 private:
  std::vector<std::int64_t> small_ = std::vector<std::int64_t>(std::size_t{1} << 16);
  std::unordered_map<std::int64_t, std::int64_t> large_;
};

void check_file(const TokenFile& file, std::int64_t vocabulary, std::int64_t begin, std::int64_t end) {
  file.scan(begin, end, [&](const auto* tokens, std::size_t count, std::int64_t first) {
    // The extremes of a block are loops the compiler vectorises; the search for the culprit runs once, if at all.
    auto smallest = tokens[0], largest = tokens[0];
    for (std::size_t i = 1; i < count; ++i) {
      smallest = std::min(smallest, tokens[i]);
      largest = std::max(largest, tokens[i]);
    }
    const auto outside = [&](auto token) {
      const auto id = static_cast<std::int64_t>(token);
      return id < 0 || id >= vocabulary;
    };
    if (!outside(smallest) && !outside(largest)) return;
    const auto* wrong = std::find_if(tokens, tokens + count, outside);
    throw UserError(Place{file.path()}, "token " + std::to_string(first + (wrong - tokens)) + " has id " +
                                            std::to_string(static_cast<std::int64_t>(*wrong)) +
                                            ", and the model's vocabulary is 0 to " + std::to_string(vocabulary - 1) +
                                            "; is it the file of another tokenizer, or of another type than " +
                                            to_string(file.type()) + "?");
  });
}

}  // namespace

TokenSource::TokenSource(std::string format, std::string path, std::vector<TokenFile> files,
                         std::unique_ptr<const MegatronIndex> index)
    : format_(std::move(format)),
      path_(std::move(path)),
      files_(std::move(files)),
      first_{0},
      index_(std::move(index)) {
  strata_check(!files_.empty(), "TokenSource: at least one file");
  strata_check(index_ == nullptr || files_.size() == 1, "TokenSource: an index is of one file");
  for (const TokenFile& file : files_) {
    if (file.type() != type()) {
      throw UserError(Place{file.path()}, std::string("its tokens are ") + to_string(file.type()) + " and those of " +
                                              files_.front().path() + " are " + to_string(type()) +
                                              "; the files of one data set have one type of token");
    }
    first_.push_back(first_.back() + file.token_count());
  }
}

std::int64_t TokenSource::sample_count(std::int64_t seq_len) const {
  strata_check(seq_len >= 1, "TokenSource::sample_count: seq_len is at least 1");
  const std::int64_t samples = (token_count() - 1) / seq_len;
  if (samples >= 1) return samples;
  throw UserError(Place{path()}, "holds " + std::to_string(token_count()) + " tokens, and one sample of seq_len " +
                                     std::to_string(seq_len) + " takes seq_len + 1 = " + std::to_string(seq_len + 1) +
                                     "; use a longer file or a smaller seq_len");
}

void TokenSource::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  strata_check(first >= 0 && count >= 0 && first <= token_count() - count,
               "TokenSource::copy: a range outside the row");
  if (count == 0) return;
  auto file = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), first) - first_.begin()) - 1;
  for (; count > 0; ++file) {
    const std::int64_t here = std::min(count, first_[file + 1] - first);
    files_[file].copy(first - first_[file], here, destination);
    first += here;
    count -= here;
    destination += here;
  }
}

void TokenSource::check_vocabulary(std::int64_t vocabulary, std::int64_t first, std::int64_t end) const {
  strata_check(first >= 0 && end <= token_count(), "TokenSource::check_vocabulary: a range outside the row");
  for (std::size_t file = 0; file < files_.size(); ++file) {
    const std::int64_t count = first_[file + 1] - first_[file];
    check_file(files_[file], vocabulary, std::clamp<std::int64_t>(first - first_[file], 0, count),
               std::clamp<std::int64_t>(end - first_[file], 0, count));
  }
}

TokenStatistics TokenSource::statistics(const std::function<void(std::int64_t)>& progress) const {
  Histogram histogram;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    files_[file].scan(0, files_[file].token_count(), [&](const auto* tokens, std::size_t count, std::int64_t first) {
      histogram.add(tokens, count);
      if (progress) progress(first_[file] + first + static_cast<std::int64_t>(count));
    });
  }
  return histogram.statistics(token_count());
}

}  // namespace strata::data
