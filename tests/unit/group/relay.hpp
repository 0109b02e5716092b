// A peer between a client and the server that stands at `port`: it may stop to answer, or lose connections.
#pragma once
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "group/address.hpp"
#include "group/store_connection.hpp"

class Relay {
 public:
  enum class Does { PassOn, SayNothing, LoseAnswers };
  explicit Relay(int server) : server_(server), listening_("127.0.0.1", 0), handle_(listening_.release()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ends_ = true;
    thread_.join();
    close(handle_);
  }
  int port() const { return listening_.port(); }
  // LoseAnswers: closes a connection instead of passing on the next answer, once.
  void from_now_on(Does does) { does_ = does; }
  int connections() const { return connections_; }

 private:
  void run() {
    while (!ends_) {
      std::vector<pollfd> watched{{handle_, POLLIN, 0}};
      for (const auto& [from, to] : other_) watched.push_back({from, POLLIN, 0});
      poll(watched.data(), watched.size(), 5);
      if ((watched[0].revents & POLLIN) != 0) take(accept(handle_, nullptr, nullptr));
      for (std::size_t i = 1; i < watched.size(); ++i)
        if (watched[i].revents != 0 && other_.contains(watched[i].fd)) pass_on(watched[i].fd);
    }
    while (!other_.empty()) drop(other_.begin()->first);
  }

  void take(int client) {
    ++connections_;
    const auto [addresses, problem] =
        strata::group::resolve_until("127.0.0.1", server_, std::chrono::steady_clock::now());
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(server, addresses.at(0).get(), addresses.at(0).length()) != 0) {
      close(server);
      close(client);
      return;
    }
    other_[client] = server;
    other_[server] = client;
    servers_.push_back(server);
  }

  void pass_on(int from) {
    std::array<char, 4096> bytes{};
    const ssize_t count = recv(from, bytes.data(), bytes.size(), 0);
    if (count <= 0) return drop(from);
    const bool answer = std::find(servers_.begin(), servers_.end(), from) != servers_.end();
    if (does_ == Does::SayNothing) return;
    if (answer && does_ == Does::LoseAnswers) {
      does_ = Does::PassOn;
      return drop(from);
    }
    [[maybe_unused]] const ssize_t sent =
        send(other_.at(from), bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL);
  }

  void drop(int one) {
    const int other = other_.at(one);
    for (const int handle : {one, other}) {
      close(handle);
      other_.erase(handle);
      std::erase(servers_, handle);
    }
  }

  int server_;
  strata::group::ListeningSocket listening_;
  int handle_;
  std::atomic<Does> does_{Does::PassOn};
  std::atomic<bool> ends_{false};
  std::atomic<int> connections_{0};
  std::map<int, int> other_;
  std::vector<int> servers_;
  std::thread thread_;
};
