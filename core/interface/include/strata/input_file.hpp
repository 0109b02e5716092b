#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

// The file does not exist.
class STRATA_EXPORT MissingFile final : public UserError {
 public:
  using UserError::UserError;
  ~MissingFile() override;
};

// A regular file opened for reading. Reads use pread instead of a mapping: pages do not count as this process's memory,
// and a file truncated during use gives an error instead of a SIGBUS. [any thread]
class STRATA_EXPORT InputFile {
 public:
  // Throws MissingFile if the file does not exist, UserError "PATH: ..." if it is not a regular file or not readable,
  // and EnvironmentError if the disk fails or this process has too many open files.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes when the file was opened
  int descriptor() const { return descriptor_; }

  // Fills `destination` from bytes [offset, offset + bytes). Blocks. Throws EnvironmentError if the disk fails, the
  // file was truncated, or the range extends past the end of the file.
  void read_at(std::uint64_t offset, void* destination, std::size_t bytes) const;
  // Throws EnvironmentError if the file was truncated after it was opened.
  void check_not_cut() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Throws an error for a file that cannot be opened, "PATH: `what`: ..." with the text of the errno: EnvironmentError if
// the machine lacks a resource or its disk fails, otherwise UserError.
[[noreturn]] STRATA_EXPORT void throw_cannot_open(const std::string& path, const char* what, int error);

}  // namespace strata
