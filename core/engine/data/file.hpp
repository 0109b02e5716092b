// A file written by offset, which appears under its name whole or not at all.
#pragma once
#include <strata/input_file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace strata::data {

using strata::InputFile;
using strata::MissingFile;

enum class Existing { Refuse, Replace };

// A name beside `path` that nobody can guess and no other process takes, on any host: PATH.tmp-0123456789abcdef.
std::string temporary_name(const std::string& path);
inline constexpr const char* temporary_mark = ".tmp-";
inline constexpr std::size_t temporary_digits = 16;

// A file written under a temporary name in the same folder and renamed by finish(); until then PATH is
// as it was. Dropped without finish(), the temporary file is removed. All calls block; errors of the disk ("no space
// left", with the bytes wanted) are EnvironmentError.
class OutputFile {
 public:
  // Throws UserError when PATH is a folder, its folder does not exist or, under Existing::Refuse, PATH exists.
  explicit OutputFile(std::string path, Existing existing = Existing::Refuse);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }

  // Takes the whole size from the disk at once, so that a full one shows before the work and not after it.
  void reserve(std::uint64_t bytes);
  void write_at(std::uint64_t offset, const void* source, std::size_t bytes);
  // What was written there. Throws EnvironmentError where it cannot be read.
  void read_at(std::uint64_t offset, void* destination, std::size_t bytes) const;
  // Brings what was written so far to the disk.
  void flush();
  // Flushes to the disk and gives the file its name. Throws UserError when, under Existing::Refuse, the name was taken
  // meanwhile.
  void finish();

 private:
  [[noreturn]] void fail(const char* action, int error, std::uint64_t bytes) const;

  std::string path_;
  std::string temporary_;
  Existing existing_;
  int descriptor_ = -1;
};

// Removes a file, or a folder with all in it. Logs a warning that names it where it cannot be removed.
void remove_or_warn(const std::filesystem::path& path) noexcept;

// Flushes a folder's list of names, so that a rename in it outlives a power failure. A file system that cannot flush
// folders (EINVAL, EOPNOTSUPP, EROFS) and a folder that may not be opened for reading (EACCES) are passed over. Throws
// EnvironmentError for any other error.
void flush_folder(const std::string& folder);

// Makes a folder and those above it, and flushes the names of the new ones. Returns why one cannot be made. Throws as
// flush_folder.
std::error_code make_folders(const std::string& path);

// Drops a flushed file's pages from this host's cache, so that the next read comes from the disk or the server. Throws
// when the file cannot be opened.
void forget_cached(const std::string& path);

}  // namespace strata::data
