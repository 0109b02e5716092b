#include "listeners.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>

namespace strata::gloo_communicator {

std::vector<int> listening_sockets() {
  std::vector<int> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int handle = -1, listens = 0;
    std::from_chars(name.data(), name.data() + name.size(), handle);
    socklen_t length = sizeof listens;
    if (getsockopt(handle, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0)
      sockets.push_back(handle);
  }
  if (error)
    throw EnvironmentError(
        "/proc/self/fd, through which this communicator finds its sockets, cannot be read: {}; mount /proc",
        error.message());
  return sockets;
}

void close_listener(int socket) {
  const int other = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr nameless{AF_UNIX, {}};  // the kernel chooses a name
  const bool replaced = other >= 0 && bind(other, &nameless, sizeof(sa_family_t)) == 0 && listen(other, 0) == 0 &&
                        dup3(other, socket, O_CLOEXEC) == socket;
  const int problem = errno;
  if (other >= 0) close(other);
  if (!replaced) throw EnvironmentError("cannot close the port on which ranks connected: {}", std::strerror(problem));
}

}  // namespace strata::gloo_communicator
