// Host memory behind a thread that makes the transfers one after the other, with the mistakes that such devices are
// written with.
#include <fcntl.h>
#include <sys/mman.h>
#include <strata/error.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION) OPTION(size, capacity, "256MiB", "min=1MiB", "", "What all regions may take together.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

constexpr std::size_t page = 4096;
constexpr std::size_t alignment = 64;
constexpr std::size_t in_flight = 4;

struct Job {
  std::byte* place = nullptr;
  Span span;
  bool is_write = false;
  bool done = false;
};

// The thread and its queue.
class Worker {
 public:
  Worker() : thread_([this] { serve(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::shared_ptr<Job> add(Job job) {
    auto added = std::make_shared<Job>(job);
    std::unique_lock lock(mutex_);
    if (has("fifth_replaces_first") && queue_.size() == in_flight) {
      queue_.front()->done = true;
      queue_.pop_front();
    }
    changed_.wait(lock, [this] { return queue_.size() < in_flight; });
    queue_.push_back(added);
    changed_.notify_all();
    return added;
  }

  bool is_pending(const Job& job) {
    const std::lock_guard lock(mutex_);
    return !job.done;
  }

  void wait(const std::shared_ptr<Job>& job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return job->done; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::shared_ptr<Job> job = queue_.front();
      lock.unlock();
      if (has("same_read_is_made_once") || has("wait_elsewhere_returns") || has("write_acknowledged_early") ||
          has("read_acknowledged_early") || has("dropped_transfer_goes_on") || has("fifth_replaces_first"))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // as slow as a disk
      if (job->is_write)
        std::memcpy(job->place, job->span.data, job->span.bytes);
      else
        std::memcpy(job->span.data, job->place, job->span.bytes);
      lock.lock();
      job->done = true;
      if (!queue_.empty() && queue_.front() == job) queue_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool closing_ = false;
  std::thread thread_;
};

class PlantedTransfer final : public Transfer {
 public:
  PlantedTransfer(Worker& worker, std::shared_ptr<Job> job) : worker_(worker), job_(std::move(job)) {}
  ~PlantedTransfer() override {
    if (job_ != nullptr && !has("dropped_transfer_goes_on") && !has("write_acknowledged_early") &&
        !has("read_acknowledged_early"))
      worker_.wait(job_);
  }
  void wait() override {
    if (has("wait_elsewhere_returns") && std::this_thread::get_id() != starter_) return;
    if (job_ == nullptr || has(job_->is_write ? "write_acknowledged_early" : "read_acknowledged_early")) return;
    worker_.wait(job_);
  }

 private:
  Worker& worker_;
  std::shared_ptr<Job> job_;  // none for no bytes
  std::thread::id starter_ = std::this_thread::get_id();
};

class PlantedOffload final : public OffloadDevice {
 public:
  PlantedOffload(PluginContext& /*context*/, const PlantedOptions& options)
      : capacity_(static_cast<std::size_t>(options.capacity)) {
    void* const memory =
        mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw UserError("capacity: " + std::to_string(capacity_) +
                      " bytes are more than there are addresses for; give less");
    arena_ = static_cast<std::byte*>(memory);
  }
  ~PlantedOffload() override {
    worker_.reset();
    munmap(arena_, capacity_);
  }
  void shutdown() override { worker_.reset(); }

  Tier tier() const override { return Tier::Host; }
  OffloadLimits limits() const override { return {has("alignment_no_power_of_two") ? 48 : alignment, in_flight, true}; }

  Region reserve(std::size_t bytes) override {
    const std::size_t pages = (bytes + page - 1) / page * page;
    const std::size_t taken = taken_;
    if (has("space_lost_by_refusal")) taken_ += std::min(bytes, capacity_ - taken);
    if (has("capacity_check_wraps") ? taken + pages > capacity_
                                    : bytes > capacity_ - taken || pages > capacity_ - taken)
      refuse(bytes, taken);
    std::size_t begin = find_place(pages, bytes);
    if (has("nine_regions_at_most") && regions_.size() >= 9) begin = regions_.begin()->second.begin;
    taken_ = taken + pages;
    const std::uint64_t id = ++last_id_;
    regions_[id] = {begin, bytes, pages};
    if (has("mapped_memory_moves") && is_mapped_) move_first();
    return {id, bytes};
  }

  void free(Region region) override {
    if (has("double_free_accepted") && !regions_.contains(region.id)) return;
    const Place place = find(region);
    if (has("free_forgets")) return;
    if (!has("dirty_reuse")) madvise(arena_ + place.begin, place.pages, MADV_DONTNEED);  // zeros for the next
    taken_ -= place.pages;
    regions_.erase(region.id);
  }

  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    return start(region, at, source, true);
  }
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    return start(region, at, target, false);
  }

  std::optional<Span> map(Region region) override {
    const Place place = find(region);
    if (has("mapped_without_map")) return std::nullopt;
    is_mapped_ = true;
    if (!has("map_is_a_copy")) return Span{arena_ + place.begin, place.bytes};
    std::vector<std::byte>& copy = copies_.emplace_back(place.bytes + alignment);
    std::byte* const begin = copy.data() + (alignment - reinterpret_cast<std::uintptr_t>(copy.data()) % alignment);
    std::memcpy(begin, arena_ + place.begin, place.bytes);
    return Span{begin, place.bytes};
  }

 private:
  struct Place {
    std::size_t begin, bytes, pages;
  };

  // As a device does that packs its regions.
  void move_first() {
    Place& first = regions_.begin()->second;
    const std::size_t to = find_place(first.pages, first.bytes);
    std::memcpy(arena_ + to, arena_ + first.begin, first.bytes);
    std::memset(arena_ + first.begin, 0xCC, first.bytes);
    first.begin = to;
  }

  [[noreturn]] void refuse(std::size_t bytes, std::size_t taken) const {
    if (has("refusal_without_figures")) throw EnvironmentError("offload planted: out of space");
    throw EnvironmentError("offload planted: " + std::to_string(bytes) + " bytes are asked for and " +
                           std::to_string(capacity_ - taken) + " are there");
  }

  // The first gap that is large enough.
  std::size_t find_place(std::size_t pages, std::size_t asked) const {
    std::map<std::size_t, std::size_t> used;
    for (const auto& [id, place] : regions_)
      used[place.begin] = has("first_fit_overlaps") ? place.bytes / page * page : place.pages;
    std::size_t begin = 0;
    for (const auto& [at, size] : used) {
      if (at >= begin && at - begin >= pages) break;
      begin = std::max(begin, at + size);
    }
    if (capacity_ - begin < pages) refuse(asked, taken_);
    return begin;
  }

  const Place& find(Region region) const {
    const auto found = regions_.find(region.id);
    if (found == regions_.end()) throw Bug("offload planted: region " + std::to_string(region.id) + " is not reserved");
    return found->second;
  }

  bool is_within(const Place& place, std::size_t at, std::size_t bytes) const {
    if (has("end_not_checked")) return at <= place.bytes;
    if (has("range_check_wraps")) return at + bytes <= place.bytes;
    return at <= place.bytes && bytes <= place.bytes - at;
  }

  std::unique_ptr<Transfer> start(Region region, std::size_t at, Span span, bool is_write) {
    const Place place = find(region);
    if (has("size_rounded_down")) {
      at = at / alignment * alignment;
      span.bytes = span.bytes / alignment * alignment;
    }
    if (!is_within(place, at, span.bytes))
      throw Bug("offload planted: a range outside region " + std::to_string(region.id));
    const bool aligned = at % alignment == 0 && span.bytes % alignment == 0 &&
                         reinterpret_cast<std::uintptr_t>(span.data) % alignment == 0;
    if (!aligned && !has("size_rounded_down"))
      throw Bug("offload planted: address, offset and size are multiples of 64");
    if (has("empty_transfer_takes_a_block") && at < place.bytes)
      span.bytes = std::max<std::size_t>(span.bytes, alignment);
    if (has("tail_of_a_block_dropped") && span.bytes > page) span.bytes = span.bytes / page * page;
    if (has("rest_of_64_forgotten") && span.bytes % (page * 16) == alignment) span.bytes -= alignment;
    if (has("far_offsets_wrap") && at > 16 * page) at %= 16 * page;
    if (has("descriptor_per_transfer")) open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (span.bytes == 0) return std::make_unique<PlantedTransfer>(*worker_, nullptr);
    std::byte* const base = has("region_base_ignored") ? arena_ : arena_ + place.begin;
    const Job job{has("offset_ignored") ? base : base + at, span, is_write, false};
    if (has("same_read_is_made_once") && !is_write && last_read_ != nullptr && worker_->is_pending(*last_read_) &&
        last_read_->place == job.place && last_read_->span.bytes == span.bytes)
      return std::make_unique<PlantedTransfer>(*worker_, last_read_);
    auto added = worker_->add(job);
    if (!is_write) last_read_ = added;
    return std::make_unique<PlantedTransfer>(*worker_, std::move(added));
  }

  std::size_t capacity_;
  std::size_t taken_ = 0;
  std::uint64_t last_id_ = 0;
  std::byte* arena_ = nullptr;
  std::map<std::uint64_t, Place> regions_;
  bool is_mapped_ = false;
  std::shared_ptr<Job> last_read_;
  std::deque<std::vector<std::byte>> copies_;
  std::unique_ptr<Worker> worker_ = std::make_unique<Worker>();
};

}  // namespace

STRATA_PLUGIN(PlantedOffload, PlantedOptions, PLANTED_OPTIONS)
