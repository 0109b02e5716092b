#include "striped_files.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace strata::offload_nvme {
namespace {

std::string system_error(int number) {
  return format("{} (errno {})", std::strerror(number), number);
}

std::string mebibytes(std::uint64_t bytes) {
  return format("{} MiB ({} bytes)", bytes >> 20, bytes);
}

// A file without a name; -1 and errno where there can be none.
int open_nameless(const std::string& folder, int flags) {
  const int descriptor = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string name = folder + "/strata-offload-XXXXXX";  // a file system without such files: between these two lines
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);  // only, the file has a name
  const int problem = errno;
  if (named >= 0 || problem == EINVAL) unlink(name.c_str());  // EINVAL: it was made, and cannot be opened with `flags`
  errno = problem;
  return named;
}

File open_in(const std::string& folder, const std::function<void(const std::string&)>& warn) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      throw UserError("offload/nvme: path is {}: {}; create the folder, or give another", folder, std::strerror(errno));
    throw_cannot_open("path: " + folder, "cannot open the folder", errno);
  }
  if (!S_ISDIR(found.st_mode))
    throw UserError("offload/nvme: path is {}, which is not a folder; give a folder on the disk to use", folder);
  File file{open_nameless(folder, O_DIRECT), folder};
  if (file.descriptor < 0 && errno == EINVAL) {
    file.descriptor = open_nameless(folder, 0);
    if (file.descriptor >= 0)
      warn(folder +
           ": its file system does not support direct I/O (O_DIRECT), so transferred data also stays in the page "
           "cache; use a folder on ext4 or xfs");
  }
  if (file.descriptor < 0)
    throw EnvironmentError("offload nvme: cannot create a file in {}: {}", folder, system_error(errno));
  struct statfs system {};
  if (fstatfs(file.descriptor, &system) == 0 && system.f_type == TMPFS_MAGIC)
    warn(folder + " is a tmpfs, so offloaded data stays in host memory; give a folder on a disk");
  return file;
}

std::uint64_t available(const File& file) {
  struct statfs system {};
  if (fstatfs(file.descriptor, &system) != 0) return 0;
  return static_cast<std::uint64_t>(system.f_bavail) * static_cast<std::uint64_t>(system.f_frsize);
}

}  // namespace

StripedFiles::StripedFiles(const std::vector<std::string>& folders, std::size_t block,
                           const std::function<void(const std::string&)>& warn)
    : block_(block) {
  for (const std::string& folder : folders) try {
      files_.push_back(open_in(folder, warn));
    } catch (...) {
      for (const File& file : files_) close(file.descriptor);
      throw;
    }
}

StripedFiles::~StripedFiles() {
  for (const File& file : files_) close(file.descriptor);
}

std::vector<StripedFiles::Part> StripedFiles::parts(std::uint64_t address, std::size_t bytes) {
  const std::uint64_t first = address / block_, last = (address + bytes - 1) / block_;  // blocks
  const std::uint64_t inside = address + bytes - last * block_;                         // of the last block
  std::vector<Part> parts;
  for (std::uint64_t number = first; number <= std::min<std::uint64_t>(last, first + files_.size() - 1); ++number) {
    const std::uint64_t file = number % files_.size();
    const std::uint64_t last_of_file = last - (last - number) % files_.size();
    const std::uint64_t begin = number / files_.size() * block_, end_block = last_of_file / files_.size() * block_;
    const std::uint64_t used = last_of_file == last ? (inside + alignment - 1) / alignment * alignment : block_;
    parts.push_back({&files_[file], begin, end_block + used});
  }
  return parts;
}

std::uint64_t StripedFiles::reserve(std::size_t bytes) {
  const std::uint64_t address = next_;
  const auto refuse = [&](const File& file, std::uint64_t needed, std::uint64_t left) {
    throw EnvironmentError(
        "offload nvme: {} are needed in {} and {} are available; free space, give more folders or a larger disk, or "
        "offload less",
        mebibytes(needed), file.folder, mebibytes(left));
  };
  if (bytes > (std::uint64_t{1} << 62) - address) refuse(files_.front(), bytes, available(files_.front()));
  const std::vector<Part> taken = parts(address, bytes);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto [file, begin, end] = taken[i];
    const std::uint64_t left = available(*file);
    int status = end - begin > left ? ENOSPC : 0;
    while (status == 0) {
      if (fallocate(file->descriptor, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0) break;
      if (errno != EINTR) status = errno;
    }
    if (status == 0) continue;
    for (std::size_t other = 0; other <= i; ++other)
      fallocate(taken[other].file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(taken[other].begin), static_cast<off_t>(taken[other].end - taken[other].begin));
    if (status == ENOSPC || status == EDQUOT || status == EFBIG) refuse(*file, end - begin, left);
    if (status == EOPNOTSUPP)
      throw EnvironmentError(
          "offload nvme: {}: its file system cannot reserve space (fallocate), so the disk could fill up during the "
          "run; give a folder on ext4, xfs, btrfs or tmpfs",
          file->folder);
    throw EnvironmentError("offload nvme: the file in {} cannot be extended to {}: {}", file->folder,
                           mebibytes(end - begin), system_error(status));
  }
  next_ = (address + bytes + block_ - 1) / block_ * block_;
  return address;
}

void StripedFiles::free(std::uint64_t address, std::size_t bytes) {
  for (const auto& [file, begin, end] : parts(address, bytes))
    fallocate(file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
              static_cast<off_t>(end - begin));
}

}  // namespace strata::offload_nvme
