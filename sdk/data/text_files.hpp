#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace strata::data {

// The inputs' files in their order, and their bytes in all. See pack_text about folders.
class TextFiles {
 public:
  TextFiles(const std::vector<std::string>& inputs, const std::string& output);

  const std::vector<std::string>& paths() const { return paths_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  std::int64_t empty() const { return empty_; }  // files without a byte
  std::int64_t skipped() const { return skipped_; }

 private:
  void add(const std::string& path, std::uint64_t bytes);
  bool is_output(const std::string& path) const;
  void add_folder(const std::string& folder);

  std::string output_;
  std::vector<std::string> paths_;
  std::uint64_t bytes_ = 0;
  std::int64_t empty_ = 0;
  std::int64_t skipped_ = 0;
};

// Whether each line of a file is a document. Throws UserError for a compressed file of such lines.
bool is_jsonl(const std::string& path);

}  // namespace strata::data
