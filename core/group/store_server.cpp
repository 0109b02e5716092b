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
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "group/address.hpp"
#include "group/signals_held_back.hpp"
#include "group/store_connection.hpp"
#include "interface/src/system_error.hpp"

namespace strata::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_of_a_stranger = 4096;  // bytes before the greeting is complete
constexpr std::uint64_t longest_text = std::uint64_t{1} << 28;
constexpr std::uint64_t most_keys = 1 << 20;          // of one request
constexpr std::chrono::seconds longest_greeting{10};  // of a connection
constexpr int tick_ms = 500;

// Reads a request from the bytes that have come.
class Reader {
 public:
  Reader(const std::string& bytes, std::size_t begin) : bytes_(bytes), at_(begin) {}
  // Nothing was read if something is missing: then `incomplete`. A request that no rank sends is `wrong`.
  bool incomplete = false;
  bool wrong = false;
  std::size_t at() const { return at_; }

  template <typename Number>
  Number number() {
    Number number{};
    if (incomplete || wrong || bytes_.size() - at_ < sizeof number) {
      incomplete = true;
      return number;
    }
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    if (size > longest_text) wrong = true;
    if (wrong || incomplete || bytes_.size() - at_ < size) {
      incomplete = true;
      return {};
    }
    const std::size_t begin = std::exchange(at_, at_ + static_cast<std::size_t>(size));
    return bytes_.substr(begin, static_cast<std::size_t>(size));
  }
  std::uint64_t count() {
    const auto count = number<std::uint64_t>();
    if (count > most_keys) wrong = true;
    return wrong || incomplete ? 0 : count;
  }

 private:
  const std::string& bytes_;
  std::size_t at_;
};

template <typename Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put_text(std::string& out, const std::string& text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

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
      : listening_(listening), wake_(wake), events_(events), greeting_("/strata/run/" + run), ends_(ends) {}
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
      Reader reader(client.in, done);
      goes_on = client.has_greeted ? answer(reader, client.out) : greet(reader, client);
      if (reader.wrong) return false;
      if (reader.incomplete) break;
      done = reader.at();
    }
    client.in.erase(0, done);
    return goes_on;
  }

  // See [Note: Greeting] in store_connection.cpp. Who names another run is told so.
  bool greet(Reader& reader, Client& client) {
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
    if (!client.has_greeted) put(client.out, store_of_another_run);
    return client.has_greeted;
  }

  bool answer(Reader& in, std::string& out) {
    switch (in.number<StoreCommand>()) {
      case StoreCommand::Set: {
        std::string key = in.text(), value = in.text();
        if (!in.incomplete) values_[key] = value;
        return true;
      }
      case StoreCommand::CompareSet: {
        std::string key = in.text(), expected = in.text(), wanted = in.text();
        if (!in.incomplete) put_text(out, compare_set(key, expected, wanted));
        return true;
      }
      case StoreCommand::Get: {
        const std::string key = in.text();
        if (!in.incomplete) put_text(out, value_of(key));
        return true;
      }
      case StoreCommand::Add: {
        const std::string key = in.text();
        const auto more = in.number<std::int64_t>();
        if (!in.incomplete) put(out, add(key, more));
        return true;
      }
      case StoreCommand::Check: {
        bool all = true;
        for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left)
          all = values_.contains(in.text()) && all;
        if (!in.incomplete) put(out, static_cast<std::uint8_t>(all ? 0 : 1));
        return true;
      }
      case StoreCommand::CountKeys:
        put(out, static_cast<std::int64_t>(values_.size()));
        return true;
      case StoreCommand::Delete: {
        const std::string key = in.text();
        if (!in.incomplete) put(out, static_cast<std::int64_t>(values_.erase(key)));
        return true;
      }
      case StoreCommand::Append: {
        const std::string key = in.text(), more = in.text();
        if (!in.incomplete) values_[key] += more;
        return true;
      }
      case StoreCommand::MultiGet: {
        std::string values;
        for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left) put_text(values, value_of(in.text()));
        if (!in.incomplete) out += values;
        return true;
      }
      case StoreCommand::MultiSet: {
        std::map<std::string, std::string> given;
        for (std::uint64_t left = in.count(); left > 0 && !in.incomplete; --left) {
          std::string key = in.text();
          given[std::move(key)] = in.text();
        }
        if (in.incomplete) return true;
        given.merge(values_);  // those that are there already stay as given
        values_.swap(given);
        return true;
      }
      case StoreCommand::Ping: {
        const auto nonce = in.number<std::uint32_t>();
        if (!in.incomplete) put(out, nonce);
        return true;
      }
      case StoreCommand::Validate:
        break;
    }
    return false;
  }

  std::string value_of(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string() : found->second;
  }

  // As c10d's: a key that is not there counts as an empty value, and is made only if that was expected.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& wanted) {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      if (!expected.empty()) return expected;
      return values_[key] = wanted;
    }
    if (found->second == expected) found->second = wanted;
    return found->second;
  }

  // As c10d's: a counter is a number in decimal digits.
  std::int64_t add(const std::string& key, std::int64_t more) {
    std::string& value = values_[key];
    const std::int64_t sum = std::strtoll(value.c_str(), nullptr, 10) + more;
    value = std::to_string(sum);
    return sum;
  }

  int listening_, wake_, events_;
  std::string greeting_;
  const std::atomic<bool>& ends_;
  std::map<int, Client> clients_;
  std::map<std::string, std::string> values_;
  Clock::time_point looked_ = Clock::now();
  std::optional<Clock::time_point> accepts_again_;
};

}  // namespace

StoreServer::StoreServer(launch::ListeningSocket& socket, const std::string& run) : port_(socket.port()) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int events = epoll_create1(EPOLL_CLOEXEC);
  const int listening = socket.release();
  if (wake_ < 0 || events < 0 || fcntl(listening, F_SETFL, O_NONBLOCK) != 0)
    throw EnvironmentError("cannot serve the run's store: " + describe_errno(errno));
  const auto loop = std::make_shared<ServerLoop>(listening, wake_, events, run, ends_);
  if (!loop->begin()) throw EnvironmentError("cannot serve the run's store: " + describe_errno(errno));
  const SignalsHeldBack held_back;
  try {
    thread_ = std::thread([loop] { loop->run(); });
  } catch (const std::system_error& error) {
    throw EnvironmentError(std::string("cannot serve the run's store: no thread can be started: ") + error.what());
  }
}

StoreServer::~StoreServer() {
  ends_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);  // without it the loop ends a tick later
  thread_.join();
  close(wake_);
}

}  // namespace strata::runtime
