// Loaded before a program and all that it starts (LD_PRELOAD): counts the calls of libc that can fail, and lets one of
// them fail once, or ends the process there.
//
//   FAILING_COUNTS=FILE        counts of all processes, as failing_calls_layout() says; made before the first starts
//   FAILING_CALL=ROLE,NAME,N   the N-th call (from 0) of NAME by a process of ROLE: rank R is role R + 1, and any other
//                              process, as the one that starts the ranks, has role 0
//   FAILING_KILLS=1            SIGKILL to the process in place of an error
//   FAILING_ERROR=NUMBER       the errno, in place of the usual one of that call
//   FAILING_FOLDER=FOLDER      and
//   FAILING_LIST=FILE          calls on paths below FOLDER are listed in FILE, "ROLE,NAME,N PATH"
//
// Each wrapper has a name of its own and the call's as its symbol, so that no header of libc contradicts it. Calls that
// libc makes of itself, and the dynamic linker's, are not seen.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

#define SYMBOL(name) __asm__(#name)

// CALL(name, result type, result of a failure, errno, parameters, arguments)
#define SIMPLE_CALLS(CALL)                                                                                           \
  CALL(read, long, -1, EIO, (int a, void* b, std::size_t c), (a, b, c))                                              \
  CALL(write, long, -1, ENOSPC, (int a, const void* b, std::size_t c), (a, b, c))                                    \
  CALL(writev, long, -1, ENOSPC, (int a, const void* b, int c), (a, b, c))                                           \
  CALL(pread64, long, -1, EIO, (int a, void* b, std::size_t c, long d), (a, b, c, d))                                \
  CALL(pread, long, -1, EIO, (int a, void* b, std::size_t c, long d), (a, b, c, d))                                  \
  CALL(pwrite64, long, -1, ENOSPC, (int a, const void* b, std::size_t c, long d), (a, b, c, d))                      \
  CALL(pwrite, long, -1, ENOSPC, (int a, const void* b, std::size_t c, long d), (a, b, c, d))                        \
  CALL(fsync, int, -1, EIO, (int a), (a))                                                                            \
  CALL(fdatasync, int, -1, EIO, (int a), (a))                                                                        \
  CALL(ftruncate, int, -1, EIO, (int a, long b), (a, b))                                                             \
  CALL(ftruncate64, int, -1, EIO, (int a, long b), (a, b))                                                           \
  CALL(fallocate, int, -1, ENOSPC, (int a, int b, long c, long d), (a, b, c, d))                                     \
  CALL(fallocate64, int, -1, ENOSPC, (int a, int b, long c, long d), (a, b, c, d))                                   \
  CALL(rename, int, -1, EIO, (const char* a, const char* b), (a, b))                                                 \
  CALL(renameat2, int, -1, EIO, (int a, const char* b, int c, const char* d, unsigned e), (a, b, c, d, e))           \
  CALL(unlink, int, -1, EIO, (const char* a), (a))                                                                   \
  CALL(unlinkat, int, -1, EIO, (int a, const char* b, int c), (a, b, c))                                             \
  CALL(remove, int, -1, EIO, (const char* a), (a))                                                                   \
  CALL(rmdir, int, -1, EIO, (const char* a), (a))                                                                    \
  CALL(mkdir, int, -1, ENOSPC, (const char* a, unsigned b), (a, b))                                                  \
  CALL(symlink, int, -1, EIO, (const char* a, const char* b), (a, b))                                                \
  CALL(readlink, long, -1, EIO, (const char* a, char* b, std::size_t c), (a, b, c))                                  \
  CALL(realpath, char*, nullptr, EIO, (const char* a, char* b), (a, b))                                              \
  CALL(getcwd, char*, nullptr, ENOENT, (char* a, std::size_t b), (a, b))                                             \
  CALL(access, int, -1, EIO, (const char* a, int b), (a, b))                                                         \
  CALL(stat, int, -1, EIO, (const char* a, void* b), (a, b))                                                         \
  CALL(lstat, int, -1, EIO, (const char* a, void* b), (a, b))                                                        \
  CALL(fstat, int, -1, EIO, (int a, void* b), (a, b))                                                                \
  CALL(stat64, int, -1, EIO, (const char* a, void* b), (a, b))                                                       \
  CALL(fstat64, int, -1, EIO, (int a, void* b), (a, b))                                                              \
  CALL(statx, int, -1, EIO, (int a, const char* b, int c, unsigned d, void* e), (a, b, c, d, e))                     \
  CALL(statvfs, int, -1, EIO, (const char* a, void* b), (a, b))                                                      \
  CALL(opendir, void*, nullptr, EMFILE, (const char* a), (a))                                                        \
  CALL(fdopendir, void*, nullptr, ENOMEM, (int a), (a))                                                              \
  CALL(readdir, void*, nullptr, EIO, (void* a), (a))                                                                 \
  CALL(readdir64, void*, nullptr, EIO, (void* a), (a))                                                               \
  CALL(flock, int, -1, ENOLCK, (int a, int b), (a, b))                                                               \
  CALL(fopen, void*, nullptr, EMFILE, (const char* a, const char* b), (a, b))                                        \
  CALL(fopen64, void*, nullptr, EMFILE, (const char* a, const char* b), (a, b))                                      \
  CALL(getrandom, long, -1, EIO, (void* a, std::size_t b, unsigned c), (a, b, c))                                    \
  CALL(memfd_create, int, -1, EMFILE, (const char* a, unsigned b), (a, b))                                           \
  CALL(pipe, int, -1, EMFILE, (int* a), (a))                                                                         \
  CALL(pipe2, int, -1, EMFILE, (int* a, int b), (a, b))                                                              \
  CALL(eventfd, int, -1, EMFILE, (unsigned a, int b), (a, b))                                                        \
  CALL(timerfd_create, int, -1, EMFILE, (int a, int b), (a, b))                                                      \
  CALL(signalfd, int, -1, EMFILE, (int a, const void* b, int c), (a, b, c))                                          \
  CALL(dup, int, -1, EMFILE, (int a), (a))                                                                           \
  CALL(dup2, int, -1, EMFILE, (int a, int b), (a, b))                                                                \
  CALL(dup3, int, -1, EMFILE, (int a, int b, int c), (a, b, c))                                                      \
  CALL(fork, int, -1, EAGAIN, (), ())                                                                                \
  CALL(waitpid, int, -1, EINTR, (int a, int* b, int c), (a, b, c))                                                   \
  CALL(waitid, int, -1, EINTR, (int a, unsigned b, void* c, int d), (a, b, c, d))                                    \
  CALL(poll, int, -1, EINTR, (void* a, unsigned long b, int c), (a, b, c))                                           \
  CALL(socket, int, -1, EMFILE, (int a, int b, int c), (a, b, c))                                                    \
  CALL(socketpair, int, -1, EMFILE, (int a, int b, int c, int* d), (a, b, c, d))                                     \
  CALL(setsockopt, int, -1, ENOBUFS, (int a, int b, int c, const void* d, unsigned e), (a, b, c, d, e))              \
  CALL(bind, int, -1, EADDRINUSE, (int a, const void* b, unsigned c), (a, b, c))                                     \
  CALL(listen, int, -1, EADDRINUSE, (int a, int b), (a, b))                                                          \
  CALL(connect, int, -1, ECONNREFUSED, (int a, const void* b, unsigned c), (a, b, c))                                \
  CALL(accept, int, -1, EMFILE, (int a, void* b, unsigned* c), (a, b, c))                                            \
  CALL(accept4, int, -1, EMFILE, (int a, void* b, unsigned* c, int d), (a, b, c, d))                                 \
  CALL(getsockname, int, -1, ENOBUFS, (int a, void* b, unsigned* c), (a, b, c))                                      \
  CALL(getaddrinfo, int, -3, EAGAIN, (const char* a, const char* b, const void* c, void** d), (a, b, c, d))          \
  CALL(getifaddrs, int, -1, ENOMEM, (void** a), (a))                                                                 \
  CALL(send, long, -1, ECONNRESET, (int a, const void* b, std::size_t c, int d), (a, b, c, d))                       \
  CALL(recv, long, -1, ECONNRESET, (int a, void* b, std::size_t c, int d), (a, b, c, d))                             \
  CALL(sendmsg, long, -1, ECONNRESET, (int a, const void* b, int c), (a, b, c))                                      \
  CALL(recvmsg, long, -1, ECONNRESET, (int a, void* b, int c), (a, b, c))                                            \
  CALL(epoll_create, int, -1, EMFILE, (int a), (a))                                                                  \
  CALL(epoll_create1, int, -1, EMFILE, (int a), (a))                                                                 \
  CALL(epoll_ctl, int, -1, ENOMEM, (int a, int b, int c, void* d), (a, b, c, d))                                     \
  CALL(epoll_wait, int, -1, EINTR, (int a, void* b, int c, int d), (a, b, c, d))                                     \
  CALL(mmap, void*, MAP_FAILED, ENOMEM, (void* a, std::size_t b, int c, int d, int e, long f), (a, b, c, d, e, f))   \
  CALL(mmap64, void*, MAP_FAILED, ENOMEM, (void* a, std::size_t b, int c, int d, int e, long f), (a, b, c, d, e, f)) \
  CALL(munmap, int, -1, EINVAL, (void* a, std::size_t b), (a, b))                                                    \
  CALL(sigaction, int, -1, EINVAL, (int a, const void* b, void* c), (a, b, c))                                       \
  CALL(setrlimit, int, -1, EPERM, (int a, const void* b), (a, b))                                                    \
  CALL(getrlimit, int, -1, EPERM, (int a, void* b), (a, b))                                                          \
  CALL(sched_getaffinity, int, -1, EINVAL, (int a, std::size_t b, void* c), (a, b, c))

// Those with a wrapper of their own below: an optional argument, an error that is returned, or small blocks left out.
// Of fcntl only the lock of an open file (F_OFD_SETLK) counts.
#define OTHER_CALLS(CALL) \
  CALL(open)              \
  CALL(open64)            \
  CALL(openat) CALL(fcntl) CALL(fcntl64) CALL(pthread_create) CALL(malloc) CALL(posix_memalign) CALL(execve)

namespace {

enum Call {
#define NUMBER(name, ...) call_##name,
  SIMPLE_CALLS(NUMBER) OTHER_CALLS(NUMBER)
#undef NUMBER
      calls
};

constexpr std::array<std::string_view, calls> names{
#define NAME(name, ...) #name,
    SIMPLE_CALLS(NAME) OTHER_CALLS(NAME)
#undef NAME
};

constexpr int roles = 9;
constexpr std::size_t large_block = 65536;

struct Counts {
  std::atomic<std::uint32_t> calls_of[roles][calls];
  std::atomic<std::uint32_t> failed;  // 1: the one call was reached
};

Counts* counts = nullptr;
int role = 0;
int failing = -1;  // the call that fails in this process, if any
std::uint32_t failing_number = 0;
bool kills = false;
int error_in_place = 0;               // of the usual one of the call
const char* listed_folder = nullptr;  // null: nothing is listed
int list = -1;

extern "C" {
void* real_malloc(std::size_t) __asm__("__libc_malloc");
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

[[gnu::constructor]] void begin() {
  const char* const file = std::getenv("FAILING_COUNTS");
  const char* const rank = std::getenv("RANK");
  const char* const call = std::getenv("FAILING_CALL");
  if (file == nullptr) return;
  role = rank == nullptr ? 0 : std::atoi(rank) + 1;
  if (role < 0 || role >= roles) return;
  const int descriptor = next<int (*)(const char*, int, ...)>("open")(file, 2);  // O_RDWR
  if (descriptor < 0) return;
  void* const memory =
      next<decltype(&::mmap)>("mmap")(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  next<int (*)(int)>("close")(descriptor);
  if (memory == MAP_FAILED) return;
  kills = std::getenv("FAILING_KILLS") != nullptr;
  if (const char* const error = std::getenv("FAILING_ERROR")) error_in_place = std::atoi(error);
  if (const char* const name = std::getenv("FAILING_LIST")) {
    list = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    listed_folder = list < 0 ? nullptr : std::getenv("FAILING_FOLDER");
  }
  int wanted_role = -1;
  char name[64] = "";
  unsigned number = 0;
  if (call != nullptr && std::sscanf(call, "%d,%63[a-z0-9_],%u", &wanted_role, name, &number) == 3 &&
      wanted_role == role) {
    for (int i = 0; i < calls; ++i)
      if (names[static_cast<std::size_t>(i)] == name) failing = i;
    failing_number = number;
  }
  counts = static_cast<Counts*>(memory);
}

// What a call is about: its first path, or the file behind its descriptor. The link itself for symlink(target, link).
template <typename First, typename... Rest>
const char* path_of(Call call, char* buffer, First first, Rest... rest) {
  if constexpr (std::is_same_v<First, const char*>) {
    if constexpr (sizeof...(Rest) > 0)
      if (call == call_symlink) return path_of(calls, buffer, rest...);
    return first;
  } else if constexpr (std::is_same_v<First, int>) {
    if constexpr (sizeof...(Rest) > 0)
      if (const char* const path = path_of(call, nullptr, rest...)) return path;
    if (buffer == nullptr) return nullptr;
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", first);
    const long length = ::syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
    if (length < 0) return nullptr;
    buffer[length] = '\0';
    return buffer;
  } else {
    return nullptr;
  }
}

template <typename... Arguments>
void list_call(Call call, std::uint32_t number, Arguments... arguments) {
  if constexpr (sizeof...(Arguments) > 0) {
    char buffer[PATH_MAX];
    const int error = errno;
    const char* const path = path_of(call, buffer, arguments...);
    if (path != nullptr && std::string_view(path).starts_with(listed_folder)) {
      char line[PATH_MAX + 64];
      const int length = std::snprintf(line, sizeof line, "%d,%s,%u %s\n", role, names[call].data(), number, path);
      if (::syscall(SYS_write, list, line, static_cast<std::size_t>(length)) != length) std::abort();
    }
    errno = error;
  }
}

// True for the reads of cpuinfo, by which libtorch chooses its instructions: it crashes if one of them fails. No code
// of Strata reads below this folder.
template <typename... Arguments>
bool is_of_cpuinfo(Call call, Arguments... arguments) {
  if constexpr (sizeof...(Arguments) > 0) {
    if (call != call_read) return false;
    char buffer[PATH_MAX];
    const int error = errno;
    const char* const path = path_of(call, buffer, arguments...);
    errno = error;
    return path != nullptr && std::string_view(path).starts_with("/sys/devices/system/cpu/");
  } else {
    return false;
  }
}

template <typename... Arguments>
bool fails(Call call, Arguments... arguments) {
  if (counts == nullptr || is_of_cpuinfo(call, arguments...)) return false;
  const std::uint32_t number = counts->calls_of[role][call]++;
  if (listed_folder != nullptr) list_call(call, number, arguments...);
  if (call != failing || number != failing_number) return false;
  counts->failed = 1;
  if (kills) {
    static const auto send = next<int (*)(int, int)>("kill");
    static const auto own = next<int (*)()>("getpid");
    send(own(), SIGKILL);
  }
  return true;
}

int error_or(int usual) {
  return error_in_place != 0 ? error_in_place : usual;
}

}  // namespace

// For who reads the counts: "ROLES SIZE NAME NAME ...", a 32-bit number for each role and name, then one for `failed`.
extern "C" [[gnu::visibility("default")]] const char* failing_calls_layout() {
  static char text[8192];
  int length = std::snprintf(text, sizeof text, "%d %zu", roles, sizeof(Counts));
  for (const std::string_view name : names)
    length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), " %s", name.data());
  return text;
}

#define REST(...) __VA_OPT__(, ) __VA_ARGS__

#define WRAPPER(name, type, failure, error, parameters, arguments)                       \
  extern "C" [[gnu::visibility("default")]] type wrapped_##name parameters SYMBOL(name); \
  extern "C" type wrapped_##name parameters {                                            \
    static const auto real = next<type(*) parameters>(#name);                            \
    if (fails(call_##name REST arguments)) {                                             \
      errno = error_or(error);                                                           \
      return failure;                                                                    \
    }                                                                                    \
    return real arguments;                                                               \
  }
SIMPLE_CALLS(WRAPPER)

#define OPEN_WRAPPER(name)                                                                                     \
  extern "C" [[gnu::visibility("default")]] int wrapped_##name(const char* path, int flags, ...) SYMBOL(name); \
  extern "C" int wrapped_##name(const char* path, int flags, ...) {                                            \
    static const auto real = next<int (*)(const char*, int, unsigned)>(#name);                                 \
    va_list more;                                                                                              \
    va_start(more, flags);                                                                                     \
    const unsigned mode = va_arg(more, unsigned);                                                              \
    va_end(more);                                                                                              \
    if (fails(call_##name, path)) {                                                                            \
      errno = error_or(EMFILE);                                                                                \
      return -1;                                                                                               \
    }                                                                                                          \
    return real(path, flags, mode);                                                                            \
  }
OPEN_WRAPPER(open)
OPEN_WRAPPER(open64)

extern "C" [[gnu::visibility("default")]] int wrapped_openat(int folder, const char* path, int flags, ...)
    SYMBOL(openat);
extern "C" int wrapped_openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int (*)(int, const char*, int, unsigned)>("openat");
  va_list more;
  va_start(more, flags);
  const unsigned mode = va_arg(more, unsigned);
  va_end(more);
  if (fails(call_openat, path)) {
    errno = error_or(EMFILE);
    return -1;
  }
  return real(folder, path, flags, mode);
}

#define LOCK_WRAPPER(name)                                                                                 \
  extern "C" [[gnu::visibility("default")]] int wrapped_##name(int handle, int command, ...) SYMBOL(name); \
  extern "C" int wrapped_##name(int handle, int command, ...) {                                            \
    static const auto real = next<int (*)(int, int, void*)>(#name);                                        \
    va_list more;                                                                                          \
    va_start(more, command);                                                                               \
    void* const argument = va_arg(more, void*);                                                            \
    va_end(more);                                                                                          \
    if (command == F_OFD_SETLK && fails(call_##name, handle)) {                                            \
      errno = error_or(ENOLCK);                                                                            \
      return -1;                                                                                           \
    }                                                                                                      \
    return real(handle, command, argument);                                                                \
  }
LOCK_WRAPPER(fcntl)
LOCK_WRAPPER(fcntl64)

extern "C" [[gnu::visibility("default")]] int wrapped_pthread_create(void*, const void*, void* (*)(void*), void*)
    SYMBOL(pthread_create);
extern "C" int wrapped_pthread_create(void* thread, const void* attributes, void* (*body)(void*), void* argument) {
  static const auto real = next<int (*)(void*, const void*, void* (*)(void*), void*)>("pthread_create");
  return fails(call_pthread_create) ? EAGAIN : real(thread, attributes, body, argument);
}

extern "C" [[gnu::visibility("default")]] int wrapped_execve(const char*, char* const*, char* const*) SYMBOL(execve);
extern "C" int wrapped_execve(const char* path, char* const* arguments, char* const* environment) {
  static const auto real = next<int (*)(const char*, char* const*, char* const*)>("execve");
  if (fails(call_execve)) {
    errno = ENOMEM;
    return -1;
  }
  return real(path, arguments, environment);
}

extern "C" [[gnu::visibility("default")]] void* wrapped_malloc(std::size_t) SYMBOL(malloc);
extern "C" void* wrapped_malloc(std::size_t bytes) {
  if (bytes < large_block || !fails(call_malloc)) return real_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

extern "C" [[gnu::visibility("default")]] int wrapped_posix_memalign(void**, std::size_t, std::size_t)
    SYMBOL(posix_memalign);
extern "C" int wrapped_posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  static const auto real = next<int (*)(void**, std::size_t, std::size_t)>("posix_memalign");
  return bytes >= large_block && fails(call_posix_memalign) ? ENOMEM : real(block, alignment, bytes);
}
