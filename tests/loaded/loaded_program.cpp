// Preloaded into a program that is linked to libtorch, carries out its commands in processes that are forked when all
// libraries are loaded: loading libtorch takes longer than most commands do. tests/loaded_programs.py starts it and
// says which commands it gets.
//
// Where STRATA_LOADED names a folder, the program listens at the socket of its name there until standard input ends. A
// connection is one command: its first message is {Header, texts}, with the descriptors that the process inherits. Each
// further message is a signal for the process. The answer is the status as of waitpid(). Closing the connection kills
// the process.
//
// A process that executes a program of this folder, as `strata train --nproc` does for each rank, passes the command on
// to that program's socket, and its signals and its end too. A program whose libraries would find other variables is
// executed.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern char** environ;

namespace {

using Main = int(int, char**, char**);
constexpr int most_descriptors = 32;
constexpr std::size_t most_bytes = 128 << 10;
constexpr int above = 512;  // descriptors on their way to their numbers

struct Header {
  int arguments, variables;  // of the texts; the last text is the working folder
  int count;                 // of descriptors
  std::array<int, most_descriptors> numbers;
};

Main* program = nullptr;
std::array<char, 4096> self;          // the executable
std::array<char, 96> sockets;         // the folder
char** variables_of_loading = {};     // what the libraries found
std::array<char*, 8> set_by_loading;  // variables of libraries' own

// What libraries read while they are loaded.
bool is_read_by_libraries(std::string_view variable) {
  for (const std::string_view beginning : {"LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLIBC_", "ASAN_"})
    if (variable.starts_with(beginning)) return true;
  return false;
}

bool holds(char** variables, std::string_view wanted) {
  for (; *variables != nullptr; ++variables)
    if (wanted == *variables) return true;
  return false;
}

bool has_name(char** variables, const char* variable) {
  const std::size_t size = static_cast<std::size_t>(std::strchr(variable, '=') - variable) + 1;
  for (; *variables != nullptr; ++variables)
    if (std::strncmp(*variables, variable, size) == 0) return true;
  return false;
}

bool finds_other(char** variables, char** others) {
  for (; *variables != nullptr; ++variables)
    if (is_read_by_libraries(*variables) && !holds(others, *variables)) return true;
  return false;
}

sockaddr_un address_of(const char* name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", sockets.data(), name);
  return address;
}

const char* name_in(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// --- the process of a command ----------------------------------------------------------------------------------------

[[noreturn]] void carry_out(const Header& header, char* text, const int* descriptors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  static std::array<char*, 8192> texts;
  const unsigned count = static_cast<unsigned>(header.arguments + header.variables);
  if (count + 2 + set_by_loading.size() > texts.size()) _exit(125);
  char** const variables = texts.data() + header.arguments + 1;
  for (int i = 0; i < header.arguments; ++i, text += std::strlen(text) + 1) texts[static_cast<std::size_t>(i)] = text;
  for (int i = 0; i < header.variables; ++i, text += std::strlen(text) + 1) variables[i] = text;
  if (chdir(text) != 0) _exit(125);
  for (int i = 0; i < header.count; ++i) dup2(descriptors[i], header.numbers[static_cast<std::size_t>(i)]);
  for (int number = 0, i = 0; number < above; ++number) {
    for (i = 0; i < header.count && header.numbers[static_cast<std::size_t>(i)] != number; ++i) {
    }
    if (i == header.count) close(number);
  }
  close_range(above, ~0U, 0);
  variables_of_loading = variables;
  char** end = variables + header.variables;
  for (char* const variable : set_by_loading)
    if (variable != nullptr && !has_name(variables, variable)) *end++ = variable;
  environ = variables;
  std::exit(program(header.arguments, texts.data(), environ));
}

[[noreturn]] void serve(int connection) {
  static std::array<char, sizeof(Header) + most_bytes> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(connection, &message, 0) < static_cast<ssize_t>(sizeof(Header))) _exit(125);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::array<int, most_descriptors> descriptors{};
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_len != CMSG_LEN(sizeof(int) * static_cast<unsigned>(header.count))) _exit(125);
  std::memcpy(descriptors.data(), CMSG_DATA(rights), sizeof(int) * static_cast<unsigned>(header.count));
  for (int i = 0; i < header.count; ++i) {
    int& descriptor = descriptors[static_cast<std::size_t>(i)];
    const int moved = fcntl(descriptor, F_DUPFD, above);
    close(descriptor);
    descriptor = moved;
  }
  const pid_t process = fork();
  if (process == 0) carry_out(header, bytes.data() + sizeof header, descriptors.data());
  close_range(above, ~0U, 0);
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  std::array<pollfd, 2> events{pollfd{ended, POLLIN, 0}, pollfd{connection, POLLIN, 0}};
  while (poll(events.data(), events.size(), -1) >= 0 && events[0].revents == 0) {
    int number = SIGKILL;
    if (recv(connection, &number, sizeof number, 0) <= 0) {
      kill(-process, SIGKILL);
      kill(process, SIGKILL);
      break;
    }
    kill(process, number);
  }
  int status = 0;
  waitpid(process, &status, 0);
  send(connection, &status, sizeof status, MSG_NOSIGNAL);
  _exit(0);
}

void find_what_loading_set() {
  static std::array<char, most_bytes> bytes;
  static std::array<char*, 8192> former;
  const int file = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
  const ssize_t size = read(file, bytes.data(), bytes.size() - 1);
  close(file);
  std::size_t count = 0;
  for (char* text = bytes.data(); text < bytes.data() + size && count + 1 < former.size();
       text += std::strlen(text) + 1)
    former[count++] = text;
  count = 0;
  for (char** variable = environ; *variable != nullptr && count < set_by_loading.size(); ++variable)
    if (!holds(former.data(), *variable)) set_by_loading[count++] = *variable;
}

int listen_instead(int, char**, char**) {
  find_what_loading_set();
  const int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(name_in(self.data()));
  if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listening, 64) != 0) {
    std::perror(address.sun_path);
    return 1;
  }
  const char* const libraries = std::getenv("LD_LIBRARY_PATH");  // as bin/strata made it
  std::puts(libraries == nullptr ? "" : libraries);              // and it listens
  std::fflush(stdout);
  std::array<pollfd, 2> events{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{listening, POLLIN, 0}};
  while (poll(events.data(), events.size(), -1) >= 0 && events[0].revents == 0) {
    const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fork() == 0) serve(connection);
    close(connection);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  _exit(0);
}

// --- what executes a program -----------------------------------------------------------------------------------------

bool append(char*& end, const char* limit, const char* text) {
  const std::size_t size = std::strlen(text) + 1;
  if (size > static_cast<std::size_t>(limit - end)) return false;
  std::memcpy(end, text, size);
  end += size;
  return true;
}

// Between fork and exec: system calls only.
int send_command(const char* path, char* const* arguments, char* const* variables) {
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(name_in(path));
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  static std::array<char, sizeof(Header) + most_bytes> bytes;
  char* end = bytes.data() + sizeof(Header);
  const char* const limit = bytes.data() + bytes.size();
  Header header{};
  bool fits = true;
  for (; arguments[header.arguments] != nullptr; ++header.arguments)
    fits = fits && append(end, limit, arguments[header.arguments]);
  for (; variables[header.variables] != nullptr; ++header.variables)
    fits = fits && append(end, limit, variables[header.variables]);
  std::array<char, 4096> folder;
  fits = fits && getcwd(folder.data(), folder.size()) != nullptr && append(end, limit, folder.data());
  for (int number = 0; number < above; ++number)
    if (const int flags = fcntl(number, F_GETFD); flags >= 0 && (flags & FD_CLOEXEC) == 0) {
      fits = fits && header.count < most_descriptors;
      if (fits) header.numbers[static_cast<std::size_t>(header.count++)] = number;
    }
  if (!fits) return -1;
  std::memcpy(bytes.data(), &header, sizeof header);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
  iovec part{bytes.data(), static_cast<std::size_t>(end - bytes.data())};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * static_cast<unsigned>(header.count));
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * static_cast<unsigned>(header.count));
  std::memcpy(CMSG_DATA(rights), header.numbers.data(), sizeof(int) * static_cast<unsigned>(header.count));
  if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0) return -1;
  return connection;
}

// Passes signals on, and ends as the other process did.
[[noreturn]] void stand_for(int connection) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  const int signals = signalfd(-1, &all, SFD_CLOEXEC);
  int status = 125 << 8;
  std::array<pollfd, 2> events{pollfd{connection, POLLIN, 0}, pollfd{signals, POLLIN, 0}};
  while (poll(events.data(), events.size(), -1) >= 0 && events[0].revents == 0) {
    signalfd_siginfo signal{};
    if (read(signals, &signal, sizeof signal) != sizeof signal) continue;
    const int number = static_cast<int>(signal.ssi_signo);
    if (number != SIGCHLD) send(connection, &number, sizeof number, MSG_NOSIGNAL);
  }
  if (recv(connection, &status, sizeof status, 0) != sizeof status) status = 125 << 8;
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(WTERMSIG(status), SIG_DFL);
  kill(getpid(), WTERMSIG(status));
  sigemptyset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  _exit(128 + WTERMSIG(status));
}

bool is_a_neighbour(const char* path) {
  const char* const name = name_in(path);
  const std::size_t folder = static_cast<std::size_t>(name_in(self.data()) - self.data());
  return static_cast<std::size_t>(name - path) == folder && std::memcmp(path, self.data(), folder) == 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int execve(const char* path, char* const* arguments, char* const* variables) {
  char** const found = const_cast<char**>(variables);
  if (sockets[0] != 0 && is_a_neighbour(path) && !finds_other(found, variables_of_loading) &&
      !finds_other(variables_of_loading, found))
    if (const int connection = send_command(path, arguments, variables); connection >= 0) stand_for(connection);
  return static_cast<int>(syscall(SYS_execve, path, arguments, variables));
}

__attribute__((visibility("default"))) int execv(const char* path, char* const* arguments) {
  return execve(path, arguments, environ);
}

__attribute__((visibility("default"))) int __libc_start_main(Main* first, int count, char** arguments, Main* init,
                                                             void (*fini)(), void (*rtld_fini)(), void* stack) {
  const auto next = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  const char* const folder = std::getenv("STRATA_LOADED");
  if (folder == nullptr || dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY) == nullptr ||
      readlink("/proc/self/exe", self.data(), self.size() - 1) < 0)
    return next(first, count, arguments, init, fini, rtld_fini, stack);
  std::snprintf(sockets.data(), sockets.size(), "%s", folder);
  unsetenv("STRATA_LOADED");
  unsetenv("LD_PRELOAD");
  program = first;
  return next(listen_instead, count, arguments, init, fini, rtld_fini, stack);
}
}
