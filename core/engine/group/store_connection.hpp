// One connection to the run's store, in the protocol of c10d's TCPStore. No call blocks longer than its deadline.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace strata::group {

// Commands of the protocol, by number.
enum class StoreCommand : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  CountKeys = 7,
  Delete = 8,
  Append = 9,
  MultiGet = 10,
  MultiSet = 11,
  Ping = 13,
};
// Prefix of the key by which a client names its run. No path: the package test searches binaries for paths.
inline constexpr const char* greeting_key = "strata/run/";
inline constexpr std::uint32_t store_magic = 0x3C85F7CE;  // number after Validate
// Number after Ping, and its answer. As text it ends two lines, so a line-based server (web server) responds at once.
inline constexpr std::uint32_t store_nonce = 0x0A0D0A0D;
inline constexpr std::uint32_t store_of_another_run = 0x52485430;  // answer of Strata's store to another run's client

// A request as bytes: integers in the machine's byte order, texts preceded by their length.
class StoreRequest {
 public:
  explicit StoreRequest(StoreCommand command) { put(static_cast<std::uint8_t>(command)); }
  template <typename Number>
  StoreRequest& put(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  StoreRequest& text(const std::string& text) {
    put<std::uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  // Appends a ping, whose answer confirms the arrival of a command that has no answer of its own.
  StoreRequest& ping() { return put(static_cast<std::uint8_t>(StoreCommand::Ping)).put(store_nonce); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reason why a connection is unusable.
struct StoreProblem : std::runtime_error {
  enum class Kind {
    Unreachable,  // the name does not resolve, there is no route, or packets get no answer
    Refused,      // nothing listens at the port
    Lost,         // an existing connection has ended
    Silent,       // a program accepts connections and does not answer
    Stranger,     // another program answers
  };
  StoreProblem(Kind what_kind, const std::string& text) : std::runtime_error(text), kind(what_kind) {}
  Kind kind;
};

class StoreConnection {
 public:
  using Clock = std::chrono::steady_clock;
  // Connects, sends `run` (the run's name) and waits for the answer to a ping. Throws StoreProblem, also once `closed`
  // is set.
  StoreConnection(const std::string& host, int port, const std::string& run, Clock::time_point deadline,
                  const std::atomic<bool>& closed);
  ~StoreConnection();
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  void send(const std::string& bytes, Clock::time_point deadline);
  void receive(void* bytes, std::size_t count, Clock::time_point deadline);
  template <typename Number>
  Number number(Clock::time_point deadline) {
    Number number{};
    receive(&number, sizeof number, deadline);
    return number;
  }
  std::vector<std::uint8_t> bytes(Clock::time_point deadline);
  void pong(Clock::time_point deadline);
  // Returns the local address of the connection.
  const std::string& local_address() const { return local_address_; }

 private:
  void connect(const std::string& host, int port, Clock::time_point deadline);
  void greet(const std::string& run, Clock::time_point deadline);
  // Waits until the socket is ready for `events` of poll().
  void wait_for(short events, Clock::time_point deadline) const;

  const std::atomic<bool>& closed_;
  int handle_ = -1;
  std::string local_address_;
};

}  // namespace strata::group
