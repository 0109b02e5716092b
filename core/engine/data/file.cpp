#include "data/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "interface/src/system_error.hpp"
#include "text/size.hpp"

namespace strata::data {
namespace {

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace

std::string temporary_name(const std::string& path) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    throw EnvironmentError("the system provides no random numbers: {}", describe_errno(errno));
  return fmt::format("{}{}{:0{}x}", path, temporary_mark, number, temporary_digits);
}

OutputFile::OutputFile(std::string path, Existing existing)
    : path_(std::move(path)), temporary_(temporary_name(path_)), existing_(existing) {
  std::error_code ignored, problem;
  const std::filesystem::file_status status = std::filesystem::status(path_, problem);
  if (problem && problem != std::errc::no_such_file_or_directory && problem != std::errc::not_a_directory)
    throw_cannot_open(path_, "cannot be written", problem.value());
  if (std::filesystem::is_directory(status)) {
    throw UserError(Place{path_}, "is a folder; give the name of a file to write");
  }
  if (existing_ == Existing::Refuse && std::filesystem::exists(path_, ignored)) {
    throw UserError(Place{path_}, "exists already and is not overwritten; choose another name or remove it first");
  }
  // Safe in a shared folder: the name is unpredictable and new, so no link can exist there.
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) return;
  const int error = errno;
  if (error == ENOENT) throw UserError(Place{path_}, "its folder {} does not exist", folder_of(path_));
  throw_cannot_open(path_, "cannot be written", error);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      existing_(other.existing_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void OutputFile::fail(const char* action, int error, std::uint64_t bytes) const {
  throw EnvironmentError("{}: {} {} failed: {}", path_, action, text::format_bytes(static_cast<std::int64_t>(bytes)),
                         describe_errno(error));
}

void OutputFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  if (::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) == 0) return;
  int error = errno;
  if (error == EOPNOTSUPP ||
      error == ENOSYS) {  // a file system that cannot promise the space; the size at least is set
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0) return;
    error = errno;
  }
  fail("reserving", error, bytes);
}

void OutputFile::write_at(std::uint64_t offset, const void* source, std::size_t bytes) {
  strata_check(descriptor_ >= 0, "OutputFile::write_at after finish");
  const auto* from = static_cast<const char*>(source);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail("writing", put < 0 ? errno : EIO, bytes);
    from += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

void OutputFile::read_at(std::uint64_t offset, void* destination, std::size_t bytes) const {
  strata_check(descriptor_ >= 0, "OutputFile::read_at after finish");
  auto* into = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, into, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("reading back", got < 0 ? errno : EIO, bytes);
    into += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void OutputFile::flush() {
  strata_check(descriptor_ >= 0, "OutputFile::flush after finish");
  if (::fdatasync(descriptor_) != 0) fail("flushing", errno, 0);
}

void OutputFile::finish() {
  strata_check(descriptor_ >= 0, "OutputFile::finish called twice");
  if (::fsync(descriptor_) != 0) fail("flushing", errno, 0);
  int result = -1;
  if (existing_ == Existing::Refuse) {
    result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    if (result != 0 && errno == EEXIST) {
      throw UserError(Place{path_},
                      "was created by another process in the meantime and is not overwritten; choose another name");
    }
  }
  // Under Refuse this is for file systems without RENAME_NOREPLACE; the constructor has looked already.
  if (existing_ == Existing::Replace || (result != 0 && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)))
    result = std::rename(temporary_.c_str(), path_.c_str());
  if (result != 0) throw EnvironmentError("{}: cannot be renamed: {}", path_, describe_errno(errno));
  ::close(std::exchange(descriptor_, -1));
  flush_folder(folder_of(path_));
}

void remove_or_warn(const std::filesystem::path& path) noexcept {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    spdlog::warn("{}: cannot be removed: {}; remove it after this run", path.string(), describe_errno(error.value()));
}

void flush_folder(const std::string& folder) {
  const auto refused = [](int error) {  // by the file system or the folder's mode: not a fault of the disk
    return error == EINVAL || error == EOPNOTSUPP || error == EROFS || error == EACCES;
  };
  const auto check = [&](int error) {
    if (!refused(error))
      throw EnvironmentError("{}: flushing this folder failed: {}; its new files may be lost in a power failure",
                             folder, describe_errno(error));
  };
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return check(errno);
  int error = 0;
  while (::fsync(descriptor) != 0) {
    error = errno;
    if (error != EINTR) break;
    error = 0;
  }
  ::close(descriptor);
  if (error != 0) check(error);
}

std::error_code make_folders(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> parents;  // of the folders that are made
  std::error_code error;
  fs::path folder = fs::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/" is "out"
  for (; !fs::exists(folder, error) && folder.has_relative_path(); folder = folder.parent_path())
    parents.push_back(folder.parent_path());
  fs::create_directories(path, error);
  if (error) return error;
  for (const fs::path& parent : parents) flush_folder(parent.string());
  return {};
}

void forget_cached(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_cannot_open(path, "cannot be read back", errno);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);  // advice: a file system without a cache has none to drop
  ::close(descriptor);
}

}  // namespace strata::data
