#include "data/text_files.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "data/file.hpp"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

bool looks_like_text(const InputFile& file) {
  std::vector<char> head(std::min<std::uint64_t>(file.size(), 8192));
  file.read_at(0, head.data(), head.size());
  return std::find(head.begin(), head.end(), '\0') == head.end();
}

}  // namespace

TextFiles::TextFiles(const std::vector<std::string>& inputs, const std::string& output) : output_(output) {
  for (const std::string& input : inputs) {
    std::error_code error;
    if (fs::is_directory(input, error)) {
      add_folder(input);
    } else {
      const InputFile file(input);
      if (is_output(input)) throw UserError(Place{input}, "is the output itself and cannot be an input");
      add(input, file.size());
    }
  }
}

void TextFiles::add(const std::string& path, std::uint64_t bytes) {
  paths_.push_back(path);
  bytes_ += bytes;
  if (bytes == 0) ++empty_;
}

bool TextFiles::is_output(const std::string& path) const {
  std::error_code error;
  return fs::equivalent(path, output_, error);
}

void TextFiles::add_folder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    if (error) break;
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden && it->is_directory()) it.disable_recursion_pending();
    if (it->is_symlink()) {
      ++skipped_;
    } else if (it->is_regular_file() && !is_output(it->path().string())) {
      hidden ? void(++skipped_) : found.push_back(it->path().string());
    }
  }
  if (error) throw UserError(Place{folder}, "cannot be listed: " + error.message());
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) {
    const InputFile file(path);
    looks_like_text(file) ? add(path, file.size()) : void(++skipped_);
  }
}

bool is_jsonl(const std::string& path) {
  for (const char* suffix : {".gz", ".zst", ".xz", ".bz2"}) {
    if (path.ends_with(std::string(".jsonl") + suffix)) {
      throw UserError(Place{path}, "is compressed; unpack it first, and pack what comes out");
    }
  }
  return path.ends_with(".jsonl");
}

}  // namespace strata::data
