#pragma once
#include <strata/input_file.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata::megatron {

// A regular file's bytes in memory. Processes of one machine share its pages. An empty file has no bytes and no
// mapping.
class MappedFile {
 public:
  // Throws UserError as InputFile does, EnvironmentError if the file cannot be mapped.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const InputFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size(); }
  // Page-aligned. If the file was truncated, touching a page past its end kills the process by SIGBUS: call
  // check_not_cut() first.
  const char* data() const { return data_; }
  void check_not_cut() const { file_.check_not_cut(); }

 private:
  InputFile file_;
  const char* data_ = nullptr;
};

}  // namespace strata::megatron
