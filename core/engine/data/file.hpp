// Output files, written by offset, that appear under their name whole or not at all.
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

// Returns a unique, unpredictable name beside `path`, on any host: PATH.tmp-0123456789abcdef.
std::string temporary_name(const std::string& path);
inline constexpr const char* temporary_mark = ".tmp-";
inline constexpr std::size_t temporary_digits = 16;

// A file written under a temporary name in the same folder and renamed by finish(); until then PATH is unchanged.
// Without finish(), the destructor removes the temporary file. All calls block; errors of the disk ("no space left",
// with the bytes needed) are EnvironmentError.
class OutputFile {
 public:
  // Throws UserError when PATH is a folder, its folder does not exist or, with Existing::Refuse, PATH exists.
  explicit OutputFile(std::string path, Existing existing = Existing::Refuse);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }

  // Reserves the whole size on the disk, so that a full disk fails before the work.
  void reserve(std::uint64_t bytes);
  void write_at(std::uint64_t offset, const void* source, std::size_t bytes);
  // Reads written bytes. Throws EnvironmentError if they cannot be read.
  void read_at(std::uint64_t offset, void* destination, std::size_t bytes) const;
  // Flushes written bytes to the disk.
  void flush();
  // Flushes to the disk and gives the file its name. Throws UserError when, with Existing::Refuse, the name was taken
  // meanwhile.
  void finish();

 private:
  [[noreturn]] void fail(const char* action, int error, std::uint64_t bytes) const;

  std::string path_;
  std::string temporary_;
  Existing existing_;
  int descriptor_ = -1;
};

// Removes a file, or a folder with its content. Logs a warning if it cannot be removed.
void remove_or_warn(const std::filesystem::path& path) noexcept;

// Flushes a folder's list of names, so that a rename in it survives a power failure. Ignores file systems that cannot
// flush folders (EINVAL, EOPNOTSUPP, EROFS) and folders without read permission (EACCES). Throws EnvironmentError for
// any other error.
void flush_folder(const std::string& folder);

// Makes a folder and its parents, and flushes the names of the new ones. Returns the error if one cannot be made.
// Throws as flush_folder.
std::error_code make_folders(const std::string& path);

// Drops a flushed file's pages from this host's cache, so that the next read comes from the disk or the server. Throws
// when the file cannot be opened.
void forget_cached(const std::string& path);

}  // namespace strata::data
