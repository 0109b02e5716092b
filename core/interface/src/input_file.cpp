#include <strata/input_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "system_error.hpp"

namespace strata {

MissingFile::~MissingFile() = default;

void throw_cannot_open(const std::string& path, const char* what, int error) {
  const std::string text = std::string(what) + ": " + describe_errno(error);
  if (is_of_the_machine(error)) throw EnvironmentError("{}: {}", path, text);
  throw UserError(Place{path}, text);
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe without a writer must not hang; it has no effect on regular files.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      throw MissingFile(Place{path_}, "cannot be opened: " + describe_errno(errno));
    throw_cannot_open(path_, "cannot be opened", errno);
  }
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(descriptor_);
    throw_cannot_open(path_, "cannot be opened", error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    const char* what = S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file";
    throw UserError(Place{path_}, "{}; give a file", what);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read_at(std::uint64_t offset, void* destination, std::size_t bytes) const {
  auto* to = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw EnvironmentError("{}: reading at byte {}: {}", path_, offset, describe_errno(errno));
    if (got == 0) {
      check_not_cut();
      throw EnvironmentError("{}: ends before byte {}", path_, offset);
    }
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void InputFile::check_not_cut() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw EnvironmentError("{}: {}", path_, describe_errno(errno));
  if (static_cast<std::uint64_t>(status.st_size) >= size_) return;
  throw EnvironmentError(
      "{}: was truncated from {} to {} bytes while in use; do not modify files while a run reads them", path_, size_,
      status.st_size);
}

}  // namespace strata
