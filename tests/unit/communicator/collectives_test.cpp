// The gloo plugin's collectives on a wire in memory: what is sent, and that no buffer is written before its message has
// left.
#include "collectives.hpp"

#include <strata/error.hpp>
#include <strata/group.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "catch.hpp"

using namespace strata;
using namespace strata::gloo_communicator;
using strata::Collective;

namespace {

// Messages between threads. Nothing is buffered: the receiver copies from the sender's memory while both wait. The n-th
// receive posted for a pair of ranks meets its n-th send.
class Exchange {
 public:
  struct Message {
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
    bool taken = false;
  };
  using Pair = std::pair<int, int>;  // from, to

  std::shared_ptr<Message> send(Pair pair, const std::byte* data, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Message> message = place(pair, sends_[pair]++);
    *message = {data, bytes};
    sent_[pair.first] += bytes;
    changed_.notify_all();
    return message;
  }
  std::shared_ptr<Message> receive(Pair pair) {
    const std::lock_guard lock(mutex_);
    return place(pair, receives_[pair]++);
  }
  void wait_taken(const Message& message) {
    wait([&] { return message.taken; });
  }
  void take(Message& message, std::byte* data, std::int64_t bytes) {
    wait([&] { return message.data != nullptr; });
    if (message.bytes != bytes) throw strata::Bug("a message met a receive of another size");
    std::memcpy(data, message.data, static_cast<std::size_t>(bytes));
    const std::lock_guard lock(mutex_);
    message.taken = true;
    changed_.notify_all();
  }
  std::int64_t sent(int rank) const { return sent_.contains(rank) ? sent_.at(rank) : 0; }
  bool all_taken() const {
    return std::all_of(messages_.begin(), messages_.end(), [](const auto& entry) { return entry.second->taken; });
  }

 private:
  std::shared_ptr<Message> place(Pair pair, int number) {
    std::shared_ptr<Message>& message = messages_[{pair, number}];
    if (message == nullptr) message = std::make_shared<Message>();
    return message;
  }
  void wait(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), done)) throw strata::EnvironmentError("nothing came");
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Pair, int>, std::shared_ptr<Message>> messages_;
  std::map<Pair, int> sends_;
  std::map<Pair, int> receives_;
  std::map<int, std::int64_t> sent_;
};

class MemoryWire final : public Wire {
 public:
  MemoryWire(Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}
  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override {
    return std::make_unique<Waiting>(
        [this, message = exchange_.send({rank_, peer}, data, bytes)] { exchange_.wait_taken(*message); });
  }
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override {
    return std::make_unique<Waiting>(
        [this, data, bytes, message = exchange_.receive({peer, rank_})] { exchange_.take(*message, data, bytes); });
  }

 private:
  class Waiting final : public HostMessage {
   public:
    explicit Waiting(std::function<void()> action) : action_(std::move(action)) {}
    void wait() override { action_(); }

   private:
    std::function<void()> action_;
  };
  Exchange& exchange_;
  int rank_;
};

// Runs `body` on every rank and returns the bytes each sent.
std::vector<std::int64_t> on_wire(int size, const std::function<void(Collectives&, int rank)>& body) {
  Exchange exchange;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      MemoryWire wire(exchange, rank);
      Collectives collectives(wire, rank, size);
      try {
        body(collectives, rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK(error == "");
  CHECK(exchange.all_taken());
  std::vector<std::int64_t> sent;
  for (int rank = 0; rank < size; ++rank) sent.push_back(exchange.sent(rank));
  return sent;
}

std::vector<float> values(int rank, std::int64_t elements) {
  std::vector<float> list(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i] = static_cast<float>((i * 31 + 7) % 1013) * 0.37F + 1000.0F * static_cast<float>(rank);
  return list;
}

std::vector<float> sums(int size, std::int64_t elements) {
  std::vector<float> total = values(0, elements);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> next = values(rank, elements);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += next[i];
  }
  return total;
}

std::byte* bytes_of(std::vector<float>& list) {
  return reinterpret_cast<std::byte*>(list.data());
}

const Reduction float_sum{at::kFloat, Fold::Sum};

}  // namespace

TEST_CASE("all_reduce in place is right around a chunk's size, with the expected traffic") {
  for (const int size : {1, 2, 3, 5})
    for (const std::int64_t elements : {1L, 5L, 8192L, 8193L, 131071L, 262145L, 1048577L}) {
      const std::vector<float> wanted = sums(size, elements);
      std::vector<char> right(static_cast<std::size_t>(size));  // not of bool: threads write to neighbours
      const std::vector<std::int64_t> sent = on_wire(size, [&](Collectives& collectives, int rank) {
        std::vector<float> data = values(rank, elements);
        collectives.all_reduce(bytes_of(data), elements, float_sum);
        right[static_cast<std::size_t>(rank)] = data == wanted ? 1 : 0;
      });
      INFO(size << " ranks, " << elements << " elements");
      CHECK(std::count(right.begin(), right.end(), 1) == size);
      const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
      const std::int64_t buffer = elements * 4;
      if (buffer > 32 * 1024)
        CHECK(total == 2 * (size - 1) * buffer);  // over all ranks: size x logical bytes, exactly
      else
        CHECK(total == size * (size - 1) * buffer);
    }
}

TEST_CASE("reduce_scatter, all_gather, all_to_all and reduce send their logical bytes") {
  for (const int size : {2, 3, 4}) {
    const std::int64_t part = 300'001;
    const std::int64_t whole = part * size;
    const std::vector<float> wanted = sums(size, whole);
    const auto each = [&](Collective collective, const std::function<void(Collectives&, int)>& body) {
      for (const std::int64_t sent : on_wire(size, body))
        CHECK(sent == strata::logical_bytes(collective, whole * 4, size));
    };
    each(Collective::ReduceScatter, [&](Collectives& collectives, int rank) {
      std::vector<float> input = values(rank, whole);
      std::byte* own = bytes_of(input) + rank * part * 4;
      collectives.reduce_scatter(own, bytes_of(input), part, float_sum);
      if (std::memcmp(own, wanted.data() + rank * part, static_cast<std::size_t>(part) * 4) != 0)
        throw strata::Bug("wrong sum");
    });
    each(Collective::AllGather, [&](Collectives& collectives, int rank) {
      std::vector<float> output(static_cast<std::size_t>(whole));
      std::vector<float> input = values(rank, part);
      collectives.all_gather(bytes_of(output), bytes_of(input), part * 4);
      for (int from = 0; from < size; ++from)
        if (std::memcmp(output.data() + from * part, values(from, part).data(), static_cast<std::size_t>(part) * 4) !=
            0)
          throw strata::Bug("wrong part");
    });
    each(Collective::AllToAll, [&](Collectives& collectives, int rank) {
      std::vector<float> output(static_cast<std::size_t>(whole));
      std::vector<float> input = values(rank, whole);
      collectives.all_to_all(bytes_of(output), bytes_of(input), part * 4);
    });
    for (int root = 0; root < size; ++root) {
      const auto check_total = [&](const std::function<void(Collectives&, int)>& body) {
        const std::vector<std::int64_t> sent = on_wire(size, body);
        const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
        CHECK(total == size * strata::logical_bytes(Collective::Broadcast, whole * 4, size));
      };
      check_total([&](Collectives& collectives, int rank) {
        std::vector<float> data = values(rank, whole);
        collectives.broadcast(bytes_of(data), whole * 4, root);
        if (data != values(root, whole)) throw strata::Bug("wrong broadcast");
      });
      check_total([&](Collectives& collectives, int rank) {
        std::vector<float> data = values(rank, whole);
        collectives.reduce(bytes_of(data), whole, root, float_sum);
        if (rank == root && data != wanted) throw strata::Bug("wrong sum at the root");
        if (rank != root && data != values(rank, whole)) throw strata::Bug("another's data was touched");
      });
    }
  }
}

TEST_CASE("barrier") {
  std::atomic<int> arrived = 0;
  on_wire(4, [&](Collectives& collectives, int) {
    ++arrived;
    collectives.barrier();
    if (arrived != 4) throw strata::Bug("a rank passed before all had come");
  });
}

TEST_CASE("dtypes that cannot be summed are refused") {
  std::byte data[8]{};
  CHECK_FALSE(reducible(at::kByte));
  CHECK_THROWS_AS(reduce_in_rank_order(data, {data}, 1, {at::kByte, Fold::Sum}), strata::Bug);
}
