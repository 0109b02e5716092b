#include "runtime/launch/local_address.hpp"

#include <netdb.h>
#include <strata/error.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace strata::launch {

namespace {

// Connecting a datagram socket chooses the route without sending; empty when there is none.
std::string source_address(const addrinfo& target) {
  const int handle = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return {};
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&local);
  const bool found = connect(handle, target.ai_addr, target.ai_addrlen) == 0 && getsockname(handle, address, &length) == 0 &&
                     getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  close(handle);
  return found ? text.data() : std::string();
}

}  // namespace

std::string address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "9", &wanted, &found); error != 0)
    throw EnvironmentError("host '" + host + "' (where the run's store is served) cannot be resolved: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next)
    if (const std::string address = source_address(*target); !address.empty()) return address;
  throw EnvironmentError("no route from here to host '" + host + "' (where the run's store is served): " + std::strerror(errno));
}

}  // namespace strata::launch
