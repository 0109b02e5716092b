// Loaded before a program (LD_PRELOAD): every pread and pwrite of files in the folder FAILING_FOLDER fails with EIO
// from the FAILING_AFTER-th call of the process on, or never returns where FAILING_HANGS is set.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool fails(int descriptor) {
  const char* const folder = std::getenv("FAILING_FOLDER");
  const char* const after = std::getenv("FAILING_AFTER");
  if (folder == nullptr || after == nullptr) return false;
  char target[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target);
  if (length < 0 || std::string(target, static_cast<std::size_t>(length)).rfind(folder, 0) != 0) return false;
  static std::atomic<long> calls{0};
  if (++calls <= std::atol(after)) return false;
  while (std::getenv("FAILING_HANGS") != nullptr) pause();
  errno = EIO;
  return true;
}

}  // namespace

extern "C" ssize_t pread64(int descriptor, void* memory, size_t bytes, off64_t offset) {
  using Function = ssize_t (*)(int, void*, size_t, off64_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pread64"));
  return fails(descriptor) ? -1 : next(descriptor, memory, bytes, offset);
}

extern "C" ssize_t pread(int descriptor, void* memory, size_t bytes, off_t offset) {
  return pread64(descriptor, memory, bytes, offset);
}

extern "C" ssize_t pwrite64(int descriptor, const void* memory, size_t bytes, off64_t offset) {
  using Function = ssize_t (*)(int, const void*, size_t, off64_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pwrite64"));
  return fails(descriptor) ? -1 : next(descriptor, memory, bytes, offset);
}

extern "C" ssize_t pwrite(int descriptor, const void* memory, size_t bytes, off_t offset) {
  return pwrite64(descriptor, memory, bytes, offset);
}
