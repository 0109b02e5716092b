#include "group/store_connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "group/address.hpp"
#include "interface/src/system_error.hpp"

namespace strata::group {

namespace {

using Kind = StoreProblem::Kind;
using std::chrono::milliseconds;

constexpr milliseconds slice{100};                // how soon close() is noticed
constexpr std::uint64_t longest_value = 1 << 30;  // of a sane answer

// The first text of another program, for a message: printable characters up to the end of a line.
std::string first_line_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, bytes.find_first_of("\r\n"))) text += byte >= ' ' && byte <= '~' ? byte : '?';
  return "'" + text + "'";
}

}  // namespace

StoreConnection::StoreConnection(const std::string& host, int port, const std::string& run, Clock::time_point deadline,
                                 const std::atomic<bool>& closed)
    : closed_(closed) {
  try {
    connect(host, port, deadline);
    greet(run, deadline);
  } catch (...) {
    if (handle_ >= 0) close(handle_);
    throw;
  }
}

StoreConnection::~StoreConnection() {
  if (handle_ >= 0) close(handle_);
}

void StoreConnection::connect(const std::string& host, int port, Clock::time_point deadline) {
  const auto [addresses, problem] = resolve_until(host, port, deadline);
  if (addresses.empty()) throw StoreProblem(Kind::Unreachable, "host '" + host + "' cannot be resolved: " + problem);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const SocketAddress& address = addresses[i];
    handle_ = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = handle_ < 0 ? errno : 0;
    if (error == 0 && ::connect(handle_, address.get(), address.length()) != 0) error = errno;
    try {
      if (error == EINPROGRESS) {
        wait_for(POLLOUT, deadline);
        socklen_t length = sizeof error;
        getsockopt(handle_, SOL_SOCKET, SO_ERROR, &error, &length);
      }
      if (error != 0)
        throw StoreProblem(error == ECONNREFUSED ? Kind::Refused : Kind::Unreachable, describe_errno(error));
    } catch (const StoreProblem&) {
      if (i + 1 == addresses.size()) throw;
      if (handle_ >= 0) close(handle_);
      handle_ = -1;
      continue;
    }
    const int yes = 1;
    setsockopt(handle_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    local_address_ = local_address_of(handle_);
    return;
  }
}

// [Note: Greeting] A server that is not c10d's must be recognised before a rank waits for it. Validate has no answer,
// so a ping follows. Between them the client names its run by setting a key, which any store accepts; the store that
// Strata serves requires it (see store_server.hpp).
void StoreConnection::greet(const std::string& run, Clock::time_point deadline) {
  StoreRequest greeting(StoreCommand::Validate);
  greeting.put(store_magic).put(static_cast<std::uint8_t>(StoreCommand::Set)).text(greeting_key + run).text("").ping();
  std::array<char, sizeof store_nonce> answer{};
  std::size_t got = 0;
  try {
    send(greeting.bytes(), deadline);
    for (; got < answer.size(); ++got) receive(&answer[got], 1, deadline);
  } catch (const StoreProblem& problem) {
    if (closed_) throw;
    if (problem.kind != Kind::Lost) throw StoreProblem(Kind::Silent, "another program accepts connections there");
    if (got == 0) throw StoreProblem(Kind::Lost, "the connection was closed before a response");
  }
  if (got == answer.size() && std::memcmp(answer.data(), &store_nonce, sizeof store_nonce) == 0) return;
  if (got == answer.size() && std::memcmp(answer.data(), &store_of_another_run, sizeof answer) == 0)
    throw StoreProblem(Kind::Stranger, "the store there serves another run");
  std::string text(answer.data(), got);
  std::array<char, 64> more{};
  const ssize_t rest = recv(handle_, more.data(), more.size(), MSG_DONTWAIT);
  if (rest > 0) text.append(more.data(), static_cast<std::size_t>(rest));
  throw StoreProblem(Kind::Stranger, "another program responds there with " + first_line_of(text));
}

void StoreConnection::wait_for(short events, Clock::time_point deadline) const {
  while (!closed_) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) throw StoreProblem(Kind::Unreachable, "no response");
    pollfd watched{handle_, events, 0};
    if (poll(&watched, 1, static_cast<int>(std::min(left, slice).count())) > 0) return;
  }
  throw StoreProblem(Kind::Lost, "the run is ending");
}

void StoreConnection::send(const std::string& bytes, Clock::time_point deadline) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(handle_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait_for(POLLOUT, deadline);
    else if (errno != EINTR)
      throw StoreProblem(Kind::Lost, "the connection is lost: " + describe_errno(errno));
  }
}

void StoreConnection::receive(void* bytes, std::size_t count, Clock::time_point deadline) {
  for (std::size_t done = 0; done < count;) {
    const ssize_t got = recv(handle_, static_cast<char*>(bytes) + done, count - done, 0);
    if (got > 0)
      done += static_cast<std::size_t>(got);
    else if (got == 0)
      throw StoreProblem(Kind::Lost, "the connection was closed");
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait_for(POLLIN, deadline);
    else if (errno != EINTR)
      throw StoreProblem(Kind::Lost, "the connection is lost: " + describe_errno(errno));
  }
}

std::vector<std::uint8_t> StoreConnection::bytes(Clock::time_point deadline) {
  const auto size = number<std::uint64_t>(deadline);
  if (size > longest_value) throw StoreProblem(Kind::Stranger, "an answer of " + std::to_string(size) + " bytes");
  std::vector<std::uint8_t> value(static_cast<std::size_t>(size));
  receive(value.data(), value.size(), deadline);
  return value;
}

void StoreConnection::pong(Clock::time_point deadline) {
  if (number<std::uint32_t>(deadline) != store_nonce)
    throw StoreProblem(Kind::Stranger, "another program responds there");
}

}  // namespace strata::group
