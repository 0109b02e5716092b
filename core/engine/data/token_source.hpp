#pragma once
#include <strata/data_source.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::data {

// A data set that a plugin has opened: one sequence (row) of token ids in one or several files. Errors name the plugin.
// [any rank]
class TokenSource {
 public:
  // Opens the data at `path`. `plugin` must outlive the source; `plugin_name`: "data/NAME", for errors. Throws as
  // DataSource::open.
  TokenSource(const DataSource& plugin, std::string plugin_name, std::string path);

  const std::string& plugin_name() const { return plugin_name_; }
  const std::string& path() const { return path_; }  // path as given: a file, a pattern, a prefix
  const std::vector<TokenFileInfo>& files() const { return files_; }
  std::int64_t token_count() const { return first_.back(); }
  std::vector<std::pair<std::string, std::int64_t>> facts() const;

  // Returns the number of samples of seq_len inputs, each followed by one more token as the last target:
  // floor((token_count - 1) / seq_len). Throws UserError if it is 0.
  std::int64_t sample_count(std::int64_t seq_len) const;
  // Returns the plugin's own order, valid as long as the source. Throws UserError when it has none.
  std::unique_ptr<const Samples> own_order(const SampleRequest& request) const;

  // Writes tokens [first, first + count) of the row to `destination`. Throws as DataSet::copy does.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;
  // True if the plugin marks which tokens are targets.
  bool has_mask() const { return has_mask_; }
  // Writes for tokens [first, first + count) of the row 1 for a target, 0 for a token that the loss ignores; ones
  // without has_mask(). Throws as DataSet::copy does.
  void copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const;

  // Checks tokens [first, end) of the row. Throws UserError that names the file and the first token whose id is
  // negative or not below `vocabulary`.
  void check_vocabulary(std::int64_t vocabulary, std::int64_t first, std::int64_t end) const;
  void check_vocabulary(std::int64_t vocabulary) const { check_vocabulary(vocabulary, 0, token_count()); }

 private:
  [[noreturn]] void refuse_token(std::int64_t token, std::int64_t id, std::int64_t vocabulary) const;

  std::string plugin_name_;
  std::string path_;
  std::unique_ptr<const DataSet> set_;
  bool has_mask_ = false;
  std::vector<TokenFileInfo> files_;
  std::vector<std::int64_t> first_;  // place of each file's first token in the row, and the row's length
};

}  // namespace strata::data
