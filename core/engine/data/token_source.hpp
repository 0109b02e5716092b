#pragma once
#include <strata/data_source.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::data {

// A data set that a plugin has opened: one long row of token ids in one file or several. Errors of the plugin name it.
// [any rank]
class TokenSource {
 public:
  // `plugin` is called `plugin_name` in errors, "data/NAME", and outlives the source. Throws what DataSource::open
  // throws.
  TokenSource(const DataSource& plugin, std::string plugin_name, std::string path);

  const std::string& plugin_name() const { return plugin_name_; }
  const std::string& path() const { return path_; }  // as it was given: a file, a pattern, a prefix
  const std::vector<TokenFileInfo>& files() const { return files_; }
  std::int64_t token_count() const { return first_.back(); }
  std::vector<std::pair<std::string, std::int64_t>> facts() const;

  // floor((token_count - 1) / seq_len): how many samples of seq_len inputs, each followed by one more token as the last
  // target. Throws UserError when there is not one.
  std::int64_t sample_count(std::int64_t seq_len) const;
  // The plugin's own order; lives no longer than the source. Throws UserError when it has none.
  std::unique_ptr<const Samples> own_order(const SampleRequest& request) const;

  // Writes tokens [first, first + count) of the row to `destination`. Throws as DataSet::copy does.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

  // Reads tokens [first, end) of the row. Throws UserError that names the file and the first token whose id is negative
  // or not below `vocabulary`.
  void check_vocabulary(std::int64_t vocabulary, std::int64_t first, std::int64_t end) const;
  void check_vocabulary(std::int64_t vocabulary) const { check_vocabulary(vocabulary, 0, token_count()); }

 private:
  [[noreturn]] void refuse_token(std::int64_t token, std::int64_t id, std::int64_t vocabulary) const;

  std::string plugin_name_;
  std::string path_;
  std::unique_ptr<const DataSet> set_;
  std::vector<TokenFileInfo> files_;
  std::vector<std::int64_t> first_;  // of each file, the place of its first token in the row; then the row's length
};

}  // namespace strata::data
