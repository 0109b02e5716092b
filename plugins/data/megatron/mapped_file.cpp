#include "mapped_file.hpp"

#include <sys/mman.h>
#include <strata/error.hpp>

#include <cerrno>
#include <system_error>
#include <utility>

namespace strata::megatron {

MappedFile::MappedFile(const std::string& path) : file_(path) {
  if (file_.size() == 0) return;
  void* mapping = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (mapping == MAP_FAILED) {
    throw EnvironmentError("{}: cannot be mapped into memory: {}", path, std::generic_category().message(errno));
  }
  data_ = static_cast<const char*>(mapping);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), file_.size());
}

}  // namespace strata::megatron
