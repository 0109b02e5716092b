#include "tools/data/token_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace strata::cli {
namespace {

// Counts of ids: an array for the small ones that nearly all files consist of, a table for the rest.
class Histogram {
 public:
  void add(const std::int64_t* ids, std::int64_t count) {
    for (const std::int64_t* one = ids; one < ids + count; ++one) {
      const std::int64_t id = *one;
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

}  // namespace

TokenStatistics statistics_of(const data::TokenSource& source, const std::function<void(std::int64_t)>& progress) {
  Histogram histogram;
  std::vector<std::int64_t> block(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < source.token_count(); first += std::ssize(block)) {
    const std::int64_t count = std::min(std::ssize(block), source.token_count() - first);
    source.copy(first, count, block.data());
    histogram.add(block.data(), count);
    if (progress) progress(first + count);
  }
  return histogram.statistics(source.token_count());
}

}  // namespace strata::cli
