#include "watched_calls.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <mutex>

namespace {

std::mutex guard;
std::string watched_folder;  // empty: none
std::vector<std::string> watched_names;
long number = 0, failing_number = 0;
int failing_error = 0;
std::string failed_call;

bool fails(const char* name, const std::string& path) {
  const std::lock_guard lock(guard);
  if (watched_folder.empty() || !path.starts_with(watched_folder)) return false;
  if (std::ranges::find(watched_names, name) == watched_names.end()) return false;
  if (++number != failing_number) return false;
  failed_call = std::string(name) + " " + path;
  errno = failing_error;
  return true;
}

bool fails(const char* name, int descriptor) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target);
  return length > 0 && fails(name, std::string(target, static_cast<std::size_t>(length)));
}

}  // namespace

WatchedCalls::WatchedCalls(const std::string& folder, const std::vector<std::string>& names, long failing, int error) {
  const std::lock_guard lock(guard);
  watched_folder = folder;
  watched_names = names;
  number = 0;
  failing_number = failing;
  failing_error = error;
  failed_call.clear();
}

WatchedCalls::~WatchedCalls() {
  const std::lock_guard lock(guard);
  watched_folder.clear();
}

long WatchedCalls::count() const {
  const std::lock_guard lock(guard);
  return number;
}

std::string WatchedCalls::failed() const {
  const std::lock_guard lock(guard);
  return failed_call;
}

// In place of the C library's: the engine's libraries call these.
extern "C" {
[[gnu::visibility("default")]] int fsync(int descriptor) {
  return fails("fsync", descriptor) ? -1 : static_cast<int>(::syscall(SYS_fsync, descriptor));
}
[[gnu::visibility("default")]] int fdatasync(int descriptor) {
  return fails("fdatasync", descriptor) ? -1 : static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}
[[gnu::visibility("default")]] int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                                             unsigned flags) noexcept {
  if (fails("renameat2", std::string(from))) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
[[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
  if (fails("rename", std::string(from))) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
[[gnu::visibility("default")]] int symlink(const char* target, const char* path) noexcept {
  if (fails("symlink", std::string(path))) return -1;
  return static_cast<int>(::syscall(SYS_symlinkat, target, AT_FDCWD, path));
}
[[gnu::visibility("default")]] int mkdir(const char* path, mode_t mode) noexcept {
  if (fails("mkdir", std::string(path))) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
[[gnu::visibility("default")]] int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  if (fails("fallocate", descriptor)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, bytes));
}
[[gnu::visibility("default")]] ssize_t pwrite(int descriptor, const void* memory, size_t bytes, off_t offset) {
  return fails("pwrite", descriptor) ? -1 : ::syscall(SYS_pwrite64, descriptor, memory, bytes, offset);
}
[[gnu::visibility("default")]] ssize_t pwrite64(int descriptor, const void* memory, size_t bytes, off64_t offset) {
  return pwrite(descriptor, memory, bytes, offset);
}
[[gnu::visibility("default")]] ssize_t pread(int descriptor, void* memory, size_t bytes, off_t offset) {
  return fails("pread", descriptor) ? -1 : ::syscall(SYS_pread64, descriptor, memory, bytes, offset);
}
[[gnu::visibility("default")]] ssize_t pread64(int descriptor, void* memory, size_t bytes, off64_t offset) {
  return pread(descriptor, memory, bytes, offset);
}
[[gnu::visibility("default")]] int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if (fails((flags & O_ACCMODE) == O_RDONLY ? "open to read" : "open to write", std::string(path))) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
[[gnu::visibility("default")]] int open64(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return open(path, flags, mode);
}
}
