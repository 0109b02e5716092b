// A file written by offset, which appears under its name whole or not at all.
#pragma once
#include <strata/input_file.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

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

// Flushes a folder's list of names, so that a rename in it outlives a power cut. Best effort: some file systems refuse
// it.
void flush_folder(const std::string& folder);

}  // namespace strata::data
