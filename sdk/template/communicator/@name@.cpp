// A communicator over the run's key-value store: a message is a value that the receiver removes. It is slow but
// complete. A communicator defines how bytes get from one rank to another (Mailbox) and how collectives use messages
// (Collectives); the toolbox adds the rest of the backend: the queue, the checks of tensors, error handling.
// <strata/communicator.hpp> and <strata/toolbox/host_backend.hpp> are the contracts.
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/host_backend.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace {

using namespace strata;
using Store = c10::intrusive_ptr<c10d::Store>;

STRATA_NO_OPTIONS(NoOptions)

// Messages of one pair and direction are split into numbered parts of at most 1 MiB, so they are received in the order
// of sending.
class Mailbox {
 public:
  Mailbox(std::string name, Store store, const GroupSetup& setup)
      : name_(std::move(name)), store_(std::move(store)), setup_(setup), sent_(setup.size), received_(setup.size) {}

  void send(int peer, const std::byte* data, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    for (std::int64_t at = 0; at < bytes; at += part_bytes) {
      const auto* begin = reinterpret_cast<const std::uint8_t*>(data) + at;
      const std::vector<std::uint8_t> part(begin, begin + std::min(part_bytes, bytes - at));
      store_->set(key(setup_.rank, peer, sent_[peer]++), part);
    }
  }
  // The number of the first part of the next message from `peer`.
  std::int64_t expect(int peer, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return std::exchange(received_[peer], received_[peer] + (bytes + part_bytes - 1) / part_bytes);
  }
  void take(int peer, std::int64_t first_part, std::byte* data, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += part_bytes) {
      const std::string part = key(peer, setup_.rank, first_part++);
      wait_for(part, peer);
      const std::vector<std::uint8_t> value = store_->get(part);
      std::memcpy(data + at, value.data(), std::min(value.size(), static_cast<std::size_t>(bytes - at)));
      store_->deleteKey(part);
    }
  }
  void abort() { aborted_ = true; }
  // From here on only abort() ends a wait; the engine knows whether the peer can still come.
  void connected() { connecting_ = false; }

 private:
  // Polls, because a blocking wait in the store would keep this rank's other threads from sending.
  void wait_for(const std::string& part, int peer) const {
    const auto deadline = std::chrono::steady_clock::now() + setup_.timeout;
    while (!store_->check({part})) {
      if (aborted_) throw EnvironmentError("the group is shut down");
      if (connecting_ && std::chrono::steady_clock::now() > deadline)
        throw EnvironmentError("rank {} of the group sent nothing for {} ms", peer, setup_.timeout.count());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  std::string key(int from, int to, std::int64_t number) const {
    return name_ + "/" + std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(number);
  }

  static constexpr std::int64_t part_bytes = 1 << 20;
  std::string name_;
  Store store_;
  GroupSetup setup_;
  std::mutex mutex_;
  std::vector<std::int64_t> sent_, received_;  // number of parts, by peer
  std::atomic<bool> aborted_ = false;
  bool connecting_ = true;
};

// Every collective is one exchange, in which each rank sends a block to every other rank, followed by arithmetic.
class Collectives final : public HostCollectives {
 public:
  Collectives(Mailbox& mailbox, int rank, int size) : mailbox_(mailbox), rank_(rank), size_(size) {}

  void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) override {
    exchange(output, input, 0, part_bytes);
  }
  void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) override {
    exchange(output, input, part_bytes, part_bytes);
  }
  void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t elements, Reduction reduction) override {
    reduce_blocks(output, input, bytes_of(elements, reduction), elements, reduction);
  }
  void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) override {
    reduce_blocks(data, data, 0, elements, reduction);
  }
  void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) override {
    std::vector<std::byte> result(static_cast<std::size_t>(bytes_of(elements, reduction)));
    reduce_blocks(result.data(), data, 0, elements, reduction);
    if (rank_ == root) std::memcpy(data, result.data(), result.size());
  }
  void broadcast(std::byte* data, std::int64_t bytes, int root) override {
    for (int peer = 0; rank_ == root && peer < size_; ++peer)
      if (peer != root) mailbox_.send(peer, data, bytes);
    if (rank_ != root) mailbox_.take(root, mailbox_.expect(root, bytes), data, bytes);
  }
  void barrier() override {
    std::vector<std::byte> signs(static_cast<std::size_t>(size_));
    exchange(signs.data(), signs.data() + rank_, 0, 1);
  }

 private:
  static std::int64_t bytes_of(std::int64_t elements, Reduction reduction) {
    return elements * static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  }
  // Block p of output comes from rank p; the block at p x stride of input goes to rank p.
  void exchange(std::byte* output, const std::byte* input, std::int64_t stride, std::int64_t bytes) {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) mailbox_.send(peer, input + peer * stride, bytes);
    if (bytes > 0) std::memmove(output + rank_ * bytes, input + rank_ * stride, static_cast<std::size_t>(bytes));
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) mailbox_.take(peer, mailbox_.expect(peer, bytes), output + peer * bytes, bytes);
  }
  // In rank order, so that every way of splitting a buffer gives the same bits.
  void reduce_blocks(std::byte* output, const std::byte* input, std::int64_t stride, std::int64_t elements,
                     Reduction reduction) {
    const std::int64_t bytes = bytes_of(elements, reduction);
    std::vector<std::byte> blocks(static_cast<std::size_t>(bytes * size_));
    exchange(blocks.data(), input, stride, bytes);
    std::vector<const std::byte*> parts;
    for (int rank = 0; rank < size_; ++rank) parts.push_back(blocks.data() + rank * bytes);
    reduce_in_rank_order(output, parts, elements, reduction);
  }

  Mailbox& mailbox_;
  int rank_, size_;
};

class StoreTransport final : public HostTransport {
 public:
  StoreTransport(const Store& store, const GroupSetup& setup)
      : for_collectives_("collective", store, setup),
        for_pairs_("pair", store, setup),
        collectives_(for_collectives_, setup.rank, setup.size) {}

  std::string name() const override { return "@name@"; }
  HostCollectives& collectives() override { return collectives_; }
  // A message is sent once it is in the store; wait() receives it.
  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override {
    for_pairs_.send(peer, data, bytes);
    return std::make_unique<Message>(nullptr);
  }
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override {
    const std::int64_t first = for_pairs_.expect(peer, bytes);
    return std::make_unique<Message>([=, this] { for_pairs_.take(peer, first, data, bytes); });
  }
  void abort() override {
    for_collectives_.abort();
    for_pairs_.abort();
  }
  void connect() {
    collectives_.barrier();  // all ranks have connected, or the timeout has passed
    for_collectives_.connected();
    for_pairs_.connected();
  }

 private:
  class Message final : public HostMessage {
   public:
    explicit Message(std::function<void()> finish) : finish_(std::move(finish)) {}
    void wait() override {
      if (finish_) std::exchange(finish_, nullptr)();
    }

   private:
    std::function<void()> finish_;
  };

  Mailbox for_collectives_, for_pairs_;
  Collectives collectives_;
};

class StoreCommunicator final : public Communicator {
 public:
  StoreCommunicator(PluginContext& /*context*/, const NoOptions& /*options*/) {}
  std::vector<std::string> device_types() const override { return {"cpu"}; }
  std::string unavailable() const override { return ""; }
  c10::intrusive_ptr<c10d::Backend> connect(const Store& store, const GroupSetup& setup) override {
    auto transport = std::make_unique<StoreTransport>(store, setup);
    transport->connect();
    return make_host_backend(setup, std::move(transport));
  }
};

}  // namespace

STRATA_PLUGIN(StoreCommunicator, NoOptions)
