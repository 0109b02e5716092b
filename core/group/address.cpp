#include "group/address.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace strata::launch {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int port, int type) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = type;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0)
    throw EnvironmentError("host '" + host + "' (host of the run's store) cannot be resolved: " + gai_strerror(error));
  return {found, &freeaddrinfo};
}

// Connecting a datagram socket chooses the route without sending; empty when there is none.
std::string source_address(const addrinfo& target) {
  const int handle = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return {};
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&local);
  const bool found = connect(handle, target.ai_addr, target.ai_addrlen) == 0 &&
                     getsockname(handle, address, &length) == 0 &&
                     getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  close(handle);
  return found ? text.data() : std::string();
}

// Whether a connection is accepted; waits for an answer no longer than until `end`.
bool accepts(const addrinfo& target, std::chrono::steady_clock::time_point end) {
  const int handle = socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return false;
  const auto left = std::chrono::ceil<std::chrono::microseconds>(end - std::chrono::steady_clock::now()).count();
  const std::int64_t wait = std::max<std::int64_t>(left, 1);  // 0 would be without limit
  const timeval limit{wait / 1'000'000, wait % 1'000'000};
  const bool accepted = setsockopt(handle, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
                        connect(handle, target.ai_addr, target.ai_addrlen) == 0;
  close(handle);
  return accepted;
}

int port_of(int handle) {
  sockaddr_in6 local{};  // of IPv4 too: the port lies at the same place
  socklen_t length = sizeof local;
  getsockname(handle, reinterpret_cast<sockaddr*>(&local), &length);
  return ntohs(local.sin6_port);
}

}  // namespace

std::string address_towards(const std::string& host) {
  constexpr int discard_port = 9;
  const Addresses found = resolve(host, discard_port, SOCK_DGRAM);
  for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next)
    if (const std::string address = source_address(*target); !address.empty()) return address;
  throw EnvironmentError("no route from here to host '" + host +
                         "' (host of the run's store): " + std::strerror(errno));
}

bool answers_within(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const Addresses found = resolve(host, port, SOCK_STREAM);
  while (true) {
    for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next)
      if (accepts(*target, end)) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ListeningSocket::ListeningSocket(const std::string& host, int port) {
  const Addresses found = resolve(host, port, SOCK_STREAM);
  int problem = 0;
  for (const addrinfo* target = found.get(); target != nullptr && handle_ < 0; target = target->ai_next) {
    const int handle = socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (handle >= 0 && setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(handle, target->ai_addr, target->ai_addrlen) == 0 && listen(handle, SOMAXCONN) == 0) {
      handle_ = handle;
      continue;
    }
    problem = errno;
    if (handle >= 0) close(handle);
  }
  if (handle_ < 0)
    throw EnvironmentError("rank 0 cannot serve the run's store at " + host + ":" + std::to_string(port) + ": " +
                           std::strerror(problem) +
                           "; set MASTER_ADDR to an address of rank 0's host, and MASTER_PORT to a free port");
  port_ = port_of(handle_);
}

ListeningSocket::~ListeningSocket() {
  if (handle_ >= 0) close(handle_);
}

int ListeningSocket::release() {
  return std::exchange(handle_, -1);
}

}  // namespace strata::launch
