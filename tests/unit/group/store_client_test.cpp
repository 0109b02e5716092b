#include "group/store_client.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "group/board.hpp"
#include "group/store_server.hpp"
#include "relay.hpp"

using namespace strata;
using namespace strata::group;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

struct Served {
  group::ListeningSocket socket{"127.0.0.1", 0};
  StoreServer server{socket, "run"};
};

StorePlace place_at(int port, milliseconds timeout, const std::string& run = "run") {
  return {.host = "127.0.0.1", .port = port, .run = run, .server = "rank 0", .timeout = timeout};
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// Every call that waits for an answer.
using Operation = std::function<void(StoreClient&)>;
const std::vector<std::pair<std::string, Operation>> operations{
    {"set", [](StoreClient& store) { store.set("key", bytes("value")); }},
    {"get", [](StoreClient& store) { store.get("key"); }},
    {"compareSet", [](StoreClient& store) { store.compareSet("key", bytes("a"), bytes("b")); }},
    {"add", [](StoreClient& store) { store.add("count", 0); }},
    {"check", [](StoreClient& store) { store.check({"key"}); }},
    {"wait", [](StoreClient& store) { store.wait({"key"}); }},
    {"wait with a limit", [](StoreClient& store) { store.wait({"key"}, milliseconds(100)); }},
    {"multiGet", [](StoreClient& store) { store.multiGet({"key"}); }},
    {"multiSet", [](StoreClient& store) { store.multiSet({"key"}, {bytes("value")}); }},
    {"deleteKey", [](StoreClient& store) { store.deleteKey("key"); }},
    {"getNumKeys", [](StoreClient& store) { store.getNumKeys(); }}};

// A socket that accepts connections, and answers what it is given with `answer`, if that is not empty.
class OtherProgram {
 public:
  explicit OtherProgram(std::string answer)
      : answer_(std::move(answer)), port_(socket_.port()), handle_(socket_.release()), thread_([this] { run(); }) {}
  ~OtherProgram() {
    shutdown(handle_, SHUT_RDWR);
    thread_.join();
    close(handle_);
  }
  int port() const { return port_; }

 private:
  void run() {
    for (int client = -1; (client = accept(handle_, nullptr, nullptr)) >= 0;) {
      std::array<char, 64> request{};
      if (!answer_.empty() && recv(client, request.data(), request.size(), 0) > 0) [[maybe_unused]]
        const ssize_t sent = send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      clients_.push_back(client);
    }
    for (const int client : clients_) close(client);
  }
  group::ListeningSocket socket_{"127.0.0.1", 0};
  std::string answer_;
  int port_;
  int handle_;
  std::vector<int> clients_;
  std::thread thread_;
};

}  // namespace

namespace {

void check_keeps(int port) {
  StoreClient store(place_at(port, milliseconds(5000)));
  const auto other = store.clone();
  store.set("key", bytes("value"));
  CHECK(other->get("key") == bytes("value"));
  CHECK(other->compareSet("key", bytes("wrong"), bytes("new")) == bytes("value"));
  CHECK(other->compareSet("key", bytes("value"), bytes("new")) == bytes("new"));
  CHECK(store.compareSet("absent", bytes("wrong"), bytes("new")) == bytes("wrong"));
  CHECK(store.compareSet("absent", bytes(""), bytes("new")) == bytes("new"));
  CHECK(store.add("count", 5) == 5);
  CHECK(other->add("count", -2) == 3);
  CHECK(store.get("count") == bytes("3"));
  store.append("key", bytes(" and more"));
  const std::string large(3 << 20, 'x');
  store.multiSet({"large", "small"}, {bytes(large), bytes("")});
  CHECK(store.multiGet({"key", "large", "small"}) ==
        std::vector<std::vector<std::uint8_t>>{bytes("new and more"), bytes(large), bytes("")});
  CHECK(store.check({"key", "large"}));
  CHECK_FALSE(store.check({"key", "missing"}));
  CHECK(store.deleteKey("key"));
  CHECK_FALSE(store.deleteKey("key"));
  CHECK_THAT(error_of<EnvironmentError>([&] { store.wait({"key"}, milliseconds(20)); }), Contains("no rank set 'key'"));
}

}  // namespace

TEST_CASE("the store keeps what clients set") {
  const Served served;
  check_keeps(served.server.port());
}

TEST_CASE("the stores of torchrun's agent are used in the same way") {
  for (const bool with_libuv : {true, false}) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    options.useLibUV = with_libuv;
    const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    check_keeps(server->getPort());
  }
}

TEST_CASE("no call waits for a store that accepts connections and never answers") {
  Served served;
  for (const auto& [name, operation] : operations) {
    INFO(name);
    Relay relay(served.server.port());
    StoreClient store(place_at(relay.port(), milliseconds(150)));
    store.set("key", bytes("value"));
    relay.from_now_on(Relay::Does::SayNothing);
    std::string text;
    CHECK(seconds_of([&] { text = error_of<EnvironmentError>([&] { operation(store); }); }) < 3.0);
    CHECK_THAT(text, Contains("no longer responds") && Contains("communicator.timeout_s"));
  }
}

TEST_CASE("a lost connection is made again, and the request repeated") {
  Served served;
  for (const auto& [name, operation] : operations) {
    INFO(name);
    Relay relay(served.server.port());
    StoreClient store(place_at(relay.port(), milliseconds(5000)));
    store.set("key", bytes("a"));
    relay.from_now_on(Relay::Does::LoseAnswers);
    CHECK_NOTHROW(operation(store));
    CHECK(relay.connections() == 2);
  }
}

TEST_CASE("an add whose answer was lost is not repeated") {
  Served served;
  Relay relay(served.server.port());
  StoreClient store(place_at(relay.port(), milliseconds(5000)));
  relay.from_now_on(Relay::Does::LoseAnswers);
  CHECK_THROWS_AS(store.add("count", 1), AddInDoubt);
  CHECK(store.add("count", 0) == 1);
}

TEST_CASE("a store whose process has ended is lost early") {
  auto served = std::make_unique<Served>();
  StoreClient store(place_at(served->server.port(), milliseconds(60'000)));
  served.reset();
  std::string text;
  CHECK(seconds_of([&] { text = error_of<EnvironmentError>([&] { store.check({"key"}); }); }) < 5.0);
  CHECK_THAT(text, Contains("rank 0, which serves it, has ended"));
  CHECK(seconds_of([&] { CHECK_THROWS_AS(store.check({"key"}), EnvironmentError); }) < 0.5);
}

TEST_CASE("an address of another program is an error that quotes its response") {
  const auto told = [](int port, const std::string& run = "run") {
    std::string text;
    CHECK(seconds_of([&] {
            text = error_of<EnvironmentError>([&] { StoreClient store(place_at(port, milliseconds(400), run)); });
          }) < 3.0);
    return text;
  };
  CHECK_THAT(told(OtherProgram("").port()),
             Contains("another program accepts connections there") && Contains("MASTER_ADDR and MASTER_PORT"));
  CHECK_THAT(told(OtherProgram("HTTP/1.1 400 Bad\r\n\r\n").port()), Contains("responds there with 'HTTP/1.1 400 Bad'"));
  CHECK_THAT(told(OtherProgram("\x1b]0;x").port()), Contains("'?]0;x'"));
  Served served;
  CHECK_THAT(told(served.server.port(), "another"), Contains("serves another run"));
  int free_port = 0;
  { free_port = group::ListeningSocket("127.0.0.1", 0).port(); }
  CHECK_THAT(told(free_port), Contains("no connection to the run's store at 127.0.0.1:") && Contains("within 400 ms"));
}

TEST_CASE("the store serves only clients with the run's name") {
  Served served;
  StoreClient store(place_at(served.server.port(), milliseconds(5000)));
  store.set("secret", bytes("value"));
  const auto answer_to = [&](const std::string& request) {
    const auto [addresses, problem] = group::resolve_until("127.0.0.1", served.server.port(), Clock::now());
    const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(handle, addresses.at(0).get(), addresses.at(0).length()) == 0);
    const timeval limit{2, 0};
    setsockopt(handle, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    send(handle, request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 256> bytes{};
    const ssize_t count = recv(handle, bytes.data(), bytes.size(), 0);
    close(handle);
    return count;
  };
  StoreRequest read(StoreCommand::Validate);
  read.put(store_magic).put(static_cast<std::uint8_t>(StoreCommand::Get)).text("/secret");
  CHECK(answer_to(read.bytes()) == 0);
  StoreRequest list(StoreCommand::Validate);
  list.put(store_magic).put(std::uint8_t{17});  // LIST_KEYS of c10d's servers
  CHECK(answer_to(list.bytes()) == 0);
  StoreRequest end(StoreCommand::Validate);
  end.put(store_magic).put(static_cast<std::uint8_t>(StoreCommand::Set)).text("strata/run/guessed").text("");
  end.put(static_cast<std::uint8_t>(StoreCommand::Set)).text("/secret").text("changed");
  CHECK(answer_to(end.bytes()) == sizeof store_of_another_run);
  CHECK(answer_to("GET / HTTP/1.1\r\n\r\n") == 0);
  CHECK(answer_to(std::string(1 << 16, '\0')) <= 0);
  CHECK(store.get("secret") == bytes("value"));
}

TEST_CASE("a rank that waits ends once its store is silent") {
  Served served;
  Relay relay(served.server.port());
  const auto client = c10::make_intrusive<StoreClient>(place_at(relay.port(), milliseconds(600)));
  const auto board = std::make_shared<Board>(BoardPlace{
      .store = client, .rank = 0, .ranks = 2, .timeout = milliseconds(600), .hang_up = [client] { client->close(); }});
  board->join();
  relay.from_now_on(Relay::Does::SayNothing);
  std::string text;
  CHECK(seconds_of([&] {
          const Board::Waiting waiting(*board, Call{.group = "", .name = "connecting"}, {1});
          while (text.empty()) {
            text = error_of<EnvironmentError>([&] { board->check(); });
            std::this_thread::sleep_for(milliseconds(10));
          }
        }) < 6.0);
  CHECK_THAT(text, Contains("no longer responds") && Contains("rank 0 waits for other ranks"));
  CHECK(seconds_of([&] { board->leave(); }) < 6.0);
}

TEST_CASE("a rank that comes twice is named with both processes") {
  Served served;
  const auto board_of = [&](int rank) {
    return std::make_shared<Board>(
        BoardPlace{.store = c10::make_intrusive<StoreClient>(place_at(served.server.port(), milliseconds(5000))),
                   .rank = rank,
                   .ranks = 2,
                   .timeout = milliseconds(5000)});
  };
  const auto first = board_of(1);
  first->join();
  const std::string text = error_of<EnvironmentError>([&] { board_of(1)->join(); });
  const std::string process = "process " + std::to_string(getpid()) + " on host ";
  CHECK_THAT(text, Contains("two processes are rank 1 of one run: " + process) && Contains("and, later, " + process));
  // Before the run has begun, nobody knows which of them belongs to it: it ends.
  std::string ended;
  for (const auto end = Clock::now() + std::chrono::seconds(5); ended.empty() && Clock::now() < end;) {
    ended = error_of<EnvironmentError>([&] { first->check(); });
    std::this_thread::sleep_for(milliseconds(10));
  }
  CHECK(ended == text);
  first->leave();
}

TEST_CASE("a rank that comes twice to a run under way changes nothing for it") {
  Served served;
  const auto store = c10::make_intrusive<StoreClient>(place_at(served.server.port(), milliseconds(5000)));
  const auto board_of = [&](int rank) {
    return std::make_shared<Board>(BoardPlace{.store = store, .rank = rank, .ranks = 1, .timeout = milliseconds(5000)});
  };
  const auto first = board_of(0);
  first->join();
  first->begun();
  CHECK_THROWS_AS(board_of(0)->join(), EnvironmentError);
  CHECK_FALSE(store->check({"board/verdict"}));
  first->leave();
}
