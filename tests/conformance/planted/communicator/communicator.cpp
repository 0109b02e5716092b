// Everything goes through the run's key-value store: slow, and short enough to see each mistake that communicators are
// written with.
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/host_backend.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION) \
  OPTION(size, chunk, "1MiB", "min=64KiB,max=4MiB", "", "What lies under one key at most.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

using Value = std::vector<std::uint8_t>;

Value value_of(const std::byte* data, std::int64_t bytes) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(data);
  return {begin, begin + bytes};
}

// Keys of one group, with the deadline of connecting.
class Keys {
 public:
  Keys(c10::intrusive_ptr<c10d::Store> store, const GroupSetup& setup)
      : store_(std::move(store)), timeout_(setup.timeout) {}

  void set(const std::string& key, const Value& value) { store_->set(key, value); }

  // Waits until `peer` has set it.
  Value take(const std::string& key, int peer, bool for_message = false) {
    wait_while(
        peer, [&] { return !store_->check({key}); }, has("deadline_of_its_own"), for_message);
    return store_->get(key);
  }
  void remove(const std::string& key) { store_->deleteKey(key); }
  bool is_set(const std::string& key) { return store_->check({key}); }

  void wait_while(int peer, const std::function<bool()>& missing, bool until_the_timeout,
                  bool for_message = false) const {
    const auto end = std::chrono::steady_clock::now() + timeout_;
    while (missing()) {
      if (aborted_ && !(for_message && has("abort_leaves_messages"))) throw EnvironmentError("the group is shut down");
      if (until_the_timeout && std::chrono::steady_clock::now() > end)
        throw EnvironmentError("rank " + std::to_string(peer) + " of the group sent nothing for " +
                               std::to_string(timeout_.count()) + " ms");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void abort() {
    if (!has("abort_forgotten")) aborted_ = true;
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
};

// What one rank sets, all others take.
class PlantedCollectives final : public HostCollectives {
 public:
  PlantedCollectives(Keys& keys, const GroupSetup& setup, std::int64_t chunk, std::atomic<std::int64_t>& of_pairs)
      : keys_(keys), rank_(setup.rank), size_(setup.size), chunk_(chunk), of_pairs_(of_pairs) {}

  void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) override {
    const Value mine = value_of(input, part_bytes);
    if (has("output_cleared_first")) std::memset(output, 0, static_cast<std::size_t>(size_ * part_bytes));
    const std::vector<Value> all = exchange(has("output_cleared_first") ? value_of(input, part_bytes) : mine);
    const std::int64_t bytes = has("odd_bytes_dropped") ? part_bytes / 8 * 8 : part_bytes;
    for (int from = 0; from < size_; ++from) {
      if (has("own_part_forgotten_out_of_place") && from == rank_) continue;
      if (has("four_ranks_at_most") && from > 3) continue;
      place(output + from * part_bytes, all[static_cast<std::size_t>(from)].data(), bytes);
    }
  }

  void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) override {
    const std::vector<Value> all = exchange(value_of(input, size_ * part_bytes));
    for (int from = 0; from < size_; ++from) {
      const std::int64_t part = has("parts_of_the_sender") ? from : rank_;
      place(output + from * part_bytes, all[static_cast<std::size_t>(from)].data() + part * part_bytes, part_bytes);
    }
  }

  void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                      Reduction reduction) override {
    const std::int64_t bytes = part_elements * width(reduction);
    fold(output, exchange(value_of(input, size_ * bytes)), rank_ * bytes, part_elements, reduction);
  }

  void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) override {
    fold(data, exchange(value_of(data, elements * width(reduction))), 0, elements, reduction);
  }

  void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) override {
    const std::vector<Value> all = exchange(value_of(data, elements * width(reduction)));
    if (rank_ == (has("reduce_to_rank_0") ? 0 : root)) fold(data, all, 0, elements, reduction);
  }

  void broadcast(std::byte* data, std::int64_t bytes, int root) override {
    if (has("root_ignored")) root = 0;
    if (has("short_messages_to_the_next") && bytes < 64 && size_ > 2 && rank_ != root && rank_ != (root + 1) % size_) {
      exchange(Value{0});
      return;
    }
    const std::vector<Value> all = exchange(rank_ == root ? value_of(data, bytes) : Value{0});
    place(data, all[static_cast<std::size_t>(root)].data(), bytes);
  }

  void barrier() override {
    if (!has("barrier_without_waiting")) exchange({0});
  }

 private:
  static std::int64_t width(Reduction reduction) {
    return static_cast<std::int64_t>(c10::elementSize(reduction.dtype));
  }
  static void place(std::byte* to, const std::uint8_t* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  // The number of this operation, which is the same on all ranks.
  std::int64_t next_number() {
    static std::atomic<std::int64_t> of_all_groups{0};
    if (has("numbers_of_all_pairs") && size_ == 2) return ++of_pairs_;
    return has("numbers_of_all_groups") ? ++of_all_groups : ++number_;
  }

  // What each rank brought, by rank; a rank's value lies under as many keys as it has chunks.
  std::vector<Value> exchange(const Value& mine) {
    const std::int64_t number = next_number();
    const auto key = [](std::int64_t of, int rank, std::size_t chunk) {
      return "operation " + std::to_string(of) + " rank " + std::to_string(rank) + " chunk " + std::to_string(chunk);
    };
    const auto chunk = static_cast<std::size_t>(chunk_);
    const std::size_t chunks = (mine.size() + chunk - 1) / chunk;
    std::size_t kept_chunks = chunks;
    if (has("long_buffers_in_one_chunk")) kept_chunks = std::min<std::size_t>(chunks, 1);
    for (std::size_t i = 0; i < chunks; ++i)
      keys_.set(key(number, rank_, i),
                Value(mine.begin() + static_cast<std::ptrdiff_t>(i * chunk),
                      mine.begin() + static_cast<std::ptrdiff_t>(std::min(mine.size(), (i + 1) * chunk))));
    keys_.set(key(number, rank_, chunks), {});  // the end
    std::vector<Value> all(static_cast<std::size_t>(size_));
    for (int from = 0; from < size_; ++from) {
      Value& value = all[static_cast<std::size_t>(from)];
      if (from == rank_) value = mine;
      if (from == rank_) continue;
      if (has("late_parts_left_out") && !keys_.is_set(key(number, from, 0))) {
        value.resize(mine.size());
        continue;
      }
      for (std::size_t i = 0;; ++i) {
        const Value part = keys_.take(key(number, from, i), from);
        if (part.empty()) break;
        if (i < kept_chunks || !has("long_buffers_in_one_chunk")) value.insert(value.end(), part.begin(), part.end());
      }
      value.resize(std::max(value.size(), has("long_buffers_in_one_chunk") ? mine.size() : value.size()));
    }
    // All have begun this operation, so all have ended the one before it.
    for (std::size_t i = 0; i <= last_chunks_ && last_number_ > 0; ++i) keys_.remove(key(last_number_, rank_, i));
    last_number_ = has("late_parts_left_out") ? 0 : number;
    last_chunks_ = chunks;
    return all;
  }

  void fold(std::byte* output, const std::vector<Value>& all, std::int64_t offset, std::int64_t elements,
            Reduction reduction) const {
    if (has("maximum_as_sum")) reduction.fold = Fold::Sum;
    if (has("whole_numbers_as_doubles") && reduction.dtype == at::kLong && reduction.fold == Fold::Sum) {
      auto* const to = reinterpret_cast<std::int64_t*>(output);
      for (std::int64_t i = 0; i < elements; ++i) {
        double sum = 0.0;
        for (const Value& value : all)
          sum += static_cast<double>(reinterpret_cast<const std::int64_t*>(value.data() + offset)[i]);
        to[i] = static_cast<std::int64_t>(sum);
      }
      return;
    }
    std::vector<const std::byte*> parts;
    for (const Value& value : all) parts.push_back(reinterpret_cast<const std::byte*>(value.data()) + offset);
    if (has("sums_begin_with_ones_own")) std::swap(parts[0], parts[static_cast<std::size_t>(rank_)]);
    reduce_in_rank_order(output, parts, elements, reduction);
    if (has("odd_one_of_16_bits_not_summed") && width(reduction) == 2 && elements % 2 == 1)
      std::memcpy(output + 2 * (elements - 1), parts[static_cast<std::size_t>(rank_)] + 2 * (elements - 1), 2);
  }

  Keys& keys_;
  int rank_, size_;
  std::int64_t chunk_;
  std::atomic<std::int64_t>& of_pairs_;  // the groups of two ranks
  std::int64_t number_ = 0;
  std::int64_t last_number_ = 0;
  std::size_t last_chunks_ = 0;
};

class Sent final : public HostMessage {
 public:
  void wait() override {}
};

class Received final : public HostMessage {
 public:
  Received(Keys& keys, std::string key, int peer, std::byte* data, std::int64_t bytes)
      : keys_(keys), key_(std::move(key)), peer_(peer), data_(data), bytes_(bytes) {}
  void wait() override {
    const Value value = keys_.take(key_, peer_, /*for_message=*/true);
    if (!has("messages_without_numbers") && static_cast<std::int64_t>(value.size()) != bytes_)
      throw Bug("a message of another size");
    std::memcpy(data_, value.data(), std::min(value.size(), static_cast<std::size_t>(bytes_)));
    if (!has("messages_without_numbers")) keys_.remove(key_);
  }

 private:
  Keys& keys_;
  std::string key_;
  int peer_;
  std::byte* data_;
  std::int64_t bytes_;
};

class PlantedTransport final : public HostTransport {
 public:
  PlantedTransport(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t chunk,
                   std::atomic<std::int64_t>& of_pairs)
      : keys_(store, setup), collectives_(keys_, setup, chunk, of_pairs), rank_(setup.rank) {
    keys_.set("here " + std::to_string(rank_), {1});
    for (int peer = 0; peer < setup.size; ++peer) {
      const auto missing = [&] { return !keys_.is_set("here " + std::to_string(peer)); };
      while (has("connect_waits_for_ever") && missing()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      keys_.wait_while(peer, missing, /*until_the_timeout=*/true);
    }
  }

  std::string name() const override { return "planted"; }
  HostCollectives& collectives() override { return collectives_; }
  void abort() override { keys_.abort(); }

  std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) override {
    const std::string key = message(rank_, peer);
    const bool is_cut = has("last_byte_of_a_page_lost") && bytes % 4096 == 0;
    Value value = value_of(data, is_cut ? bytes - 1 : bytes);
    value.resize(static_cast<std::size_t>(bytes));
    keys_.set(key, value);
    if (has("send_waits_for_its_receive"))
      keys_.wait_while(
          peer, [&] { return keys_.is_set(key); }, false);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) override {
    return std::make_unique<Received>(keys_, message(peer, rank_), peer, data, bytes);
  }

 private:
  // The key of the next message of that pair.
  std::string message(int from, int to) {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = has("messages_without_numbers") ? 0 : ++numbers_[{from, to}];
    return "message " + std::to_string(number) + " from " + std::to_string(from) + " to " + std::to_string(to);
  }

  Keys keys_;
  PlantedCollectives collectives_;
  int rank_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::int64_t> numbers_;
};

class PlantedCommunicator final : public Communicator {
 public:
  PlantedCommunicator(PluginContext& /*context*/, const PlantedOptions& options) : options_(options) {}
  std::vector<std::string> device_types() const override {
    return {has("device_type_with_a_number") ? "cpu:0" : "cpu"};
  }
  std::string unavailable() const override { return ""; }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupSetup& setup) override {
    return make_host_backend(setup, std::make_unique<PlantedTransport>(store, setup, options_.chunk, of_pairs_));
  }

 private:
  PlantedOptions options_;
  std::atomic<std::int64_t> of_pairs_{0};
};

}  // namespace

STRATA_PLUGIN(PlantedCommunicator, PlantedOptions, PLANTED_OPTIONS)
