// Loaded before a program (LD_PRELOAD): lists the calls that open files below the folder FAILING_FOLDER or bring them
// to the disk, "NAME PATH", in the file FAILING_LIST, and fails call number FAILING_NUMBER (from 1) of the process with
// the errno FAILING_ERROR.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>

namespace {

bool fails(const char* name, const std::string& path) {
  const char* const folder = std::getenv("FAILING_FOLDER");
  if (folder == nullptr || path.rfind(folder, 0) != 0) return false;
  static std::atomic<long> calls{0};
  const long number = ++calls;
  if (const char* const list = std::getenv("FAILING_LIST")) {
    const std::string line = std::string(name) + " " + path + "\n";
    const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, list, O_WRONLY | O_CREAT | O_APPEND, 0666));
    if (syscall(SYS_write, file, line.data(), line.size()) < 0) abort();
    syscall(SYS_close, file);
  }
  const char* const failing = std::getenv("FAILING_NUMBER");
  if (failing == nullptr || number != std::atol(failing)) return false;
  errno = std::atoi(std::getenv("FAILING_ERROR"));
  return true;
}

bool fails(const char* name, int descriptor) {
  char target[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target);
  return length > 0 && fails(name, std::string(target, static_cast<std::size_t>(length)));
}

}  // namespace

extern "C" {
int fsync(int descriptor) {
  return fails("fsync", descriptor) ? -1 : static_cast<int>(syscall(SYS_fsync, descriptor));
}
int fdatasync(int descriptor) {
  return fails("fdatasync", descriptor) ? -1 : static_cast<int>(syscall(SYS_fdatasync, descriptor));
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return fails("renameat2", from) ? -1
                                  : static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int rename(const char* from, const char* to) noexcept {
  return fails("rename", from) ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int symlink(const char* target, const char* path) noexcept {
  return fails("symlink", path) ? -1 : static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, path));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir", path) ? -1 : static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  return fails("fallocate", descriptor) ? -1
                                        : static_cast<int>(syscall(SYS_fallocate, descriptor, mode, offset, bytes));
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes) {
  return fallocate(descriptor, mode, offset, bytes);
}
int fcntl(int descriptor, int command, ...) {
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (command == F_OFD_SETLK && fails("lock", descriptor)) return -1;
  return static_cast<int>(syscall(SYS_fcntl, descriptor, command, argument));
}
int fcntl64(int descriptor, int command, ...) {
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  return fcntl(descriptor, command, argument);
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return fails("open", path) ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return open(path, flags, mode);
}
}
