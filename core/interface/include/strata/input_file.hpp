#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

// There is no file of this name.
class STRATA_EXPORT MissingFile final : public UserError {
 public:
  using UserError::UserError;
  ~MissingFile() override;
};

// A regular file opened for reading. Reads go through pread and not through a mapping: the pages do not count as this
// process's memory, and a file cut while it is in use is an error and not a SIGBUS. [any thread]
class STRATA_EXPORT InputFile {
 public:
  // Throws MissingFile when there is none, UserError "PATH: ..." when it is not a regular file or may not be read, and
  // EnvironmentError when the machine is in the way: its disk, or the files that this process has open.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, when it was opened
  int descriptor() const { return descriptor_; }

  // Fills `destination` from bytes [offset, offset + bytes). Blocks. Throws EnvironmentError when the disk fails or the
  // file has become shorter.
  void read_at(std::uint64_t offset, void* destination, std::size_t bytes) const;
  // Throws EnvironmentError when the file is shorter now than when it was opened.
  void check_not_cut() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Throws what says why a file cannot be opened: "PATH: `what`: ..." of an errno. What the machine has run out of, or
// has lost, is an EnvironmentError; all else is a UserError.
[[noreturn]] STRATA_EXPORT void throw_cannot_open(const std::string& path, const char* what, int error);

}  // namespace strata
