#include "group/store_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <system_error>

#include "group/address.hpp"
#include "group/signals_held_back.hpp"
#include "group/store_connection.hpp"
#include "group/store_values.hpp"
#include "interface/src/system_error.hpp"

namespace strata::group {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_of_a_stranger = 4096;      // bytes before the greeting is complete
constexpr std::chrono::seconds longest_greeting{10};  // of a connection
constexpr int tick_ms = 500;

struct Client {
  std::string in;
  std::string out;
  bool has_greeted = false;
  bool watches_out = false;
  Clock::time_point came = Clock::now();
};

class ServerLoop {
 public:
  ServerLoop(int listening, int wake, int events, const std::string& run, const std::atomic<bool>& ends)
      : listening_(listening), wake_(wake), events_(events), greeting_(greeting_key + run), ends_(ends) {}
  ~ServerLoop() {
    for (const auto& [handle, client] : clients_) close(handle);
    for (const int handle : {listening_, events_}) close(handle);
  }

  // False, and errno, where the system does not tell of events.
  bool begin() { return watch(wake_, EPOLLIN, EPOLL_CTL_ADD) && watch(listening_, EPOLLIN, EPOLL_CTL_ADD); }

  void run() {
    std::array<epoll_event, 64> found{};
    while (!ends_) {
      const int count = epoll_wait(events_, found.data(), static_cast<int>(found.size()), tick_ms);
      for (int i = 0; i < count; ++i) {
        const int handle = found[static_cast<std::size_t>(i)].data.fd;
        if (handle == wake_) break;  // `ends_` is set
        if (handle == listening_)
          accept_all();
        else
          serve(handle, found[static_cast<std::size_t>(i)].events);
      }
      close_strangers();
    }
  }

 private:
  bool watch(int handle, std::uint32_t events, int how) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = handle;
    return epoll_ctl(events_, how, handle, &event) == 0;
  }

  // Where no descriptor is left, those who wait are accepted later, once strangers were closed.
  void accept_all() {
    while (true) {
      const int handle = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (handle >= 0) {
        const int yes = 1;
        setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        clients_.emplace(handle, Client{});
        if (!watch(handle, EPOLLIN, EPOLL_CTL_ADD)) drop(handle);  // it connects again
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        watch(listening_, 0, EPOLL_CTL_MOD);
        accepts_again_ = Clock::now() + std::chrono::milliseconds(tick_ms);
      }
      return;
    }
  }

  void close_strangers() {
    const auto now = Clock::now();
    if (accepts_again_ && now >= *accepts_again_) {
      accepts_again_.reset();
      if (!watch(listening_, EPOLLIN, EPOLL_CTL_MOD)) accepts_again_ = now + std::chrono::milliseconds(tick_ms);
    }
    if (now - looked_ < std::chrono::milliseconds(tick_ms)) return;
    looked_ = now;
    for (auto at = clients_.begin(); at != clients_.end();) {
      const bool late = !at->second.has_greeted && now - at->second.came > longest_greeting;
      if (late) close(at->first);
      at = late ? clients_.erase(at) : std::next(at);
    }
  }

  void drop(int handle) {
    close(handle);
    clients_.erase(handle);
  }

  void serve(int handle, std::uint32_t events) {
    const auto found = clients_.find(handle);
    if (found == clients_.end()) return;
    Client& client = found->second;
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && !read(handle, client)) return drop(handle);
    const bool goes_on = answer_all(client);
    if (!write(handle, client) || !goes_on) drop(handle);
  }

  static bool read(int handle, Client& client) {
    std::array<char, 64 << 10> buffer;
    const ssize_t count = recv(handle, buffer.data(), buffer.size(), 0);
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    client.in.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0 && (client.has_greeted || client.in.size() <= most_of_a_stranger);
  }

  bool write(int handle, Client& client) const {
    while (!client.out.empty()) {
      const ssize_t count = send(handle, client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
      if (count < 0) break;
      client.out.erase(0, static_cast<std::size_t>(count));
    }
    const bool waits = !client.out.empty();
    if (waits != client.watches_out && !watch(handle, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD))
      return false;
    client.watches_out = waits;
    return true;
  }

  // Answers every whole request; false closes the connection.
  bool answer_all(Client& client) {
    std::size_t done = 0;
    bool goes_on = true;
    while (goes_on && done < client.in.size()) {
      StoreRequestReader reader(client.in, done);
      goes_on = client.has_greeted ? values_.answer(reader, client.out) : greet(reader, client);
      if (reader.wrong) return false;
      if (reader.incomplete) break;
      done = reader.at();
    }
    client.in.erase(0, done);
    return goes_on;
  }

  // See [Note: Greeting] in store_connection.cpp. A client of another run gets an error.
  bool greet(StoreRequestReader& reader, Client& client) {
    const auto first = reader.number<StoreCommand>();
    if (!reader.incomplete && first != StoreCommand::Validate) return false;
    const auto magic = reader.number<std::uint32_t>();
    if (!reader.incomplete && magic != store_magic) return false;
    const auto second = reader.number<StoreCommand>();
    if (!reader.incomplete && second != StoreCommand::Set) return false;
    const std::string key = reader.text();
    reader.text();
    if (reader.incomplete) return true;
    client.has_greeted = key == greeting_;
    if (!client.has_greeted) put_number(client.out, store_of_another_run);
    return client.has_greeted;
  }

  int listening_, wake_, events_;
  std::string greeting_;
  const std::atomic<bool>& ends_;
  std::map<int, Client> clients_;
  StoreValues values_;
  Clock::time_point looked_ = Clock::now();
  std::optional<Clock::time_point> accepts_again_;
};

}  // namespace

StoreServer::StoreServer(ListeningSocket& socket, const std::string& run) : port_(socket.port()) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int events = epoll_create1(EPOLL_CLOEXEC);
  const int listening = socket.release();
  if (wake_ < 0 || events < 0 || fcntl(listening, F_SETFL, O_NONBLOCK) != 0)
    throw EnvironmentError("cannot serve the run's store: {}", describe_errno(errno));
  const auto loop = std::make_shared<ServerLoop>(listening, wake_, events, run, ends_);
  if (!loop->begin()) throw EnvironmentError("cannot serve the run's store: {}", describe_errno(errno));
  const SignalsHeldBack held_back;
  try {
    thread_ = std::thread([loop] { loop->run(); });
  } catch (const std::system_error& error) {
    throw EnvironmentError("cannot serve the run's store: no thread can be started: {}", error.what());
  }
}

StoreServer::~StoreServer() {
  ends_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);  // without it the loop ends a tick later
  thread_.join();
  close(wake_);
}

}  // namespace strata::group
