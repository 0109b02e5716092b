#include "data/pack.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace strata::data {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t block_bytes = std::size_t{1} << 20;

bool looks_like_text(const InputFile& file) {
  std::vector<char> head(std::min<std::uint64_t>(file.size(), 8192));
  file.read_at(0, head.data(), head.size());
  return std::find(head.begin(), head.end(), '\0') == head.end();
}

// The inputs' files in their order, and their bytes in all.
class FileList {
 public:
  FileList(const std::vector<std::string>& inputs, const std::string& output) : output_(output) {
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

  const std::vector<std::string>& paths() const { return paths_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  std::int64_t skipped() const { return skipped_; }

 private:
  void add(const std::string& path, std::uint64_t bytes) {
    paths_.push_back(path);
    bytes_ += bytes;
  }

  bool is_output(const std::string& path) const {
    std::error_code error;
    return fs::equivalent(path, output_, error);
  }

  void add_folder(const std::string& folder) {
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

  std::string output_;
  std::vector<std::string> paths_;
  std::uint64_t bytes_ = 0;
  std::int64_t skipped_ = 0;
};

template <typename Token>
void pack_files(const FileList& list, OutputFile& output,
                const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::vector<unsigned char> bytes(block_bytes);
  std::vector<Token> tokens(block_bytes);
  std::uint64_t written = 0;  // tokens
  for (const std::string& path : list.paths()) {
    const InputFile file(path);
    for (std::uint64_t at = 0; at < file.size();) {
      const std::size_t count = std::min<std::uint64_t>(block_bytes, file.size() - at);
      file.read_at(at, bytes.data(), count);
      std::copy(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count), tokens.begin());
      output.write_at(written * sizeof(Token), tokens.data(), count * sizeof(Token));
      at += count;
      written += count;
      if (progress) progress(static_cast<std::int64_t>(written), list.bytes());
    }
  }
  if (written != static_cast<std::uint64_t>(list.bytes())) {
    throw EnvironmentError(output.path() + ": the inputs changed while they were packed; try again");
  }
}

}  // namespace

PackResult pack_text(const std::vector<std::string>& inputs, const std::string& output, TokenWidth width,
                     Existing existing, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const FileList list(inputs, output);
  if (list.bytes() == 0) {
    throw UserError("nothing to pack: " + std::to_string(list.paths().size()) +
                    " text files with 0 bytes were found (" + std::to_string(list.skipped()) +
                    " others were skipped); name files or folders that hold text");
  }
  OutputFile file(output, existing);
  file.reserve(static_cast<std::uint64_t>(list.bytes()) * static_cast<std::uint64_t>(width));
  if (width == TokenWidth::U16) {
    pack_files<std::uint16_t>(list, file, progress);
  } else {
    pack_files<std::uint32_t>(list, file, progress);
  }
  file.finish();
  return {static_cast<std::int64_t>(list.paths().size()), list.bytes(), list.skipped()};
}

}  // namespace strata::data
