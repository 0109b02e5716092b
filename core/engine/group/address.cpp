#include "group/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "interface/src/system_error.hpp"

namespace strata::group {

namespace {

using Clock = std::chrono::steady_clock;

// How long this process waits for name servers before it has a deadline of the run.
constexpr std::chrono::seconds name_server{10};

// The result of a separate thread: getaddrinfo() has no deadline, and is abandoned when it is late.
struct Resolution {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  std::vector<SocketAddress> addresses;
  std::string problem;
};

void resolve(Resolution& resolution, const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  const std::lock_guard lock(resolution.mutex);
  if (error != 0) resolution.problem = gai_strerror(error);
  for (const addrinfo* target = error == 0 ? found : nullptr; target != nullptr; target = target->ai_next)
    resolution.addresses.emplace_back(target->ai_addr, target->ai_addrlen);
  if (error == 0) freeaddrinfo(found);
  resolution.is_done = true;
  resolution.done.notify_all();
}

// A numeric address needs no name server.
bool is_numeric(const std::string& host) {
  std::array<char, sizeof(in6_addr)> address{};
  return inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

// Connecting a datagram socket chooses the route without sending; empty when there is none.
std::string source_address(const SocketAddress& target) {
  const int handle = socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return {};
  std::string text;
  if (connect(handle, target.get(), target.length()) == 0) text = local_address_of(handle);
  const int problem = errno;
  close(handle);
  errno = problem;
  return text;
}

int port_of(int handle) {
  sockaddr_in6 local{};  // of IPv4 too: the port lies at the same place
  socklen_t length = sizeof local;
  getsockname(handle, reinterpret_cast<sockaddr*>(&local), &length);
  return ntohs(local.sin6_port);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length) : length_(length) {
  std::memcpy(&address_, address, std::min<std::size_t>(length, sizeof address_));
}

std::string SocketAddress::text() const {
  std::array<char, NI_MAXHOST> text{};
  const int error = getnameinfo(get(), length_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text.data() : std::string();
}

std::pair<std::vector<SocketAddress>, std::string> resolve_until(const std::string& host, int port,
                                                                 Clock::time_point deadline) {
  const auto resolution = std::make_shared<Resolution>();
  if (is_numeric(host))
    resolve(*resolution, host, port);
  else
    std::thread([resolution, host, port] { resolve(*resolution, host, port); }).detach();
  std::unique_lock lock(resolution->mutex);
  if (!resolution->done.wait_until(lock, deadline, [&] { return resolution->is_done; }))
    return {{}, "no name server responds"};
  return {resolution->addresses, resolution->problem};
}

std::string local_address_of(int socket) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&local), &length) != 0) return {};
  return SocketAddress(reinterpret_cast<sockaddr*>(&local), length).text();
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

std::string address_towards(const std::string& host) {
  constexpr int discard_port = 9;
  const auto [found, problem] = resolve_until(host, discard_port, Clock::now() + name_server);
  if (found.empty()) return {};
  for (const SocketAddress& target : found)
    if (const std::string address = source_address(target); !address.empty()) return address;
  throw EnvironmentError("no route from here to host '{}' (host of the run's store): {}", host, describe_errno(errno));
}

ListeningSocket::ListeningSocket(const std::string& host, int port) {
  const auto [found, reason] = resolve_until(host, port, Clock::now() + name_server);
  int problem = EADDRNOTAVAIL;
  for (const SocketAddress& target : found) {
    if (handle_ >= 0) break;
    const int handle = socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (handle >= 0 && setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(handle, target.get(), target.length()) == 0 && listen(handle, SOMAXCONN) == 0) {
      handle_ = handle;
      continue;
    }
    problem = errno;
    if (handle >= 0) close(handle);
  }
  if (handle_ < 0)
    throw EnvironmentError(
        "rank 0 cannot serve the run's store at {}:{}: {}; set MASTER_ADDR to an address of rank 0's host, and "
        "MASTER_PORT to a free port{}",
        host, port, found.empty() ? "host '" + host + "' cannot be resolved: " + reason : describe_errno(problem),
        problem == EADDRNOTAVAIL && !found.empty()
            ? " (rank 0 cannot listen on an address that a service or router translates, unless the launcher serves "
              "the store, as torchrun does)"
            : "");
  port_ = port_of(handle_);
}

ListeningSocket::~ListeningSocket() {
  if (handle_ >= 0) close(handle_);
}

int ListeningSocket::release() {
  return std::exchange(handle_, -1);
}

}  // namespace strata::group
