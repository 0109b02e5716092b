#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace strata {

// A file of this content that is in no folder.
class FileInMemory {
 public:
  explicit FileInMemory(const std::string& content) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (write(descriptor_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) __builtin_trap();
  }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  ~FileInMemory() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace strata
