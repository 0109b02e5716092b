// The StateStore owns every buffer that outlives an instruction of the step; the ledger counts its bytes. In a dry run
// the store's device is "meta": bytes are counted but no memory is allocated.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/device.hpp>
#include <strata/memory.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata {

// Allocated bytes by category and tier.
struct STRATA_EXPORT Ledger {
  using Table = std::array<std::array<std::int64_t, tier_count>, category_count>;
  Table now{};
  Table peak{};                                       // peak of each cell
  std::array<std::int64_t, tier_count> total_peak{};  // peak of the sum over categories
  std::int64_t total(Tier tier) const;                // current sum over categories
};

class STRATA_EXPORT StateStore {
 public:
  // Creates a store whose Tier::Device buffers are on `device`; meta makes every buffer meta.
  explicit StateStore(at::Device device);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  at::Device device() const { return device_; }
  bool dry_run() const { return device_.is_meta(); }

  // Allocates a contiguous buffer of `elements` zeros, valid until free(). `owner` names it in listings ("zero3: layer
  // 3 gradients"). Throws EnvironmentError with the ledger if memory is exhausted.
  at::Tensor allocate(Category category, Tier tier, const std::string& owner, std::int64_t elements,
                      at::ScalarType dtype);
  // Frees a buffer of allocate(); throws Bug for any other tensor.
  void free(const at::Tensor& buffer);
  // Counts bytes of buffers that the store does not own, such as offload regions and activations that the engine holds;
  // a call with negative bytes subtracts them.
  void count(Category category, Tier tier, std::int64_t bytes);

  const Ledger& ledger() const { return ledger_; }
  // Resets the peaks to the current values.
  void reset_peaks();

 private:
  struct Entry {
    Category category;
    Tier tier;
    std::int64_t bytes;
    std::string owner;
    at::Tensor buffer;
  };
  at::Device device_;
  Ledger ledger_;
  std::map<const void*, Entry> entries_;  // by StorageImpl
};

// A reusable buffer for a gathered parameter or a full gradient, with the events that order its uses. The user of the
// slot records both events. Before filling the slot, make the stream wait for `last_use`; before reading it, for
// `ready`.
class STRATA_EXPORT Slot {
 public:
  // Returns the first `elements` elements of the slot as `dtype`. Throws Bug if the slot is too small.
  at::Tensor as(at::ScalarType dtype, std::int64_t elements) const;
  Event& ready() { return *ready_; }
  Event& last_use() { return *last_use_; }

 private:
  friend class SlotPool;
  at::Tensor bytes_;
  std::unique_ptr<Event> ready_;
  std::unique_ptr<Event> last_use_;
  bool taken_ = false;
};

// [Note: Slots] The first step allocates the slots of each size, and the pool keeps them. Later steps allocate nothing,
// and since acquire() takes the lowest free slot, the same program uses the same addresses in every step. Nothing is
// freed inside a step, so there is no race with a caching allocator and no need for record_stream.
class STRATA_EXPORT SlotPool {
 public:
  SlotPool(StateStore& store, Device& device);
  ~SlotPool();
  // Returns a free slot of at least `bytes`, counted under `category`. The pool owns it.
  Slot* acquire(Category category, std::int64_t bytes);
  // Returns a slot to the pool. Throws Bug if it was not acquired.
  void release(Slot* slot);
  // Returns the number of slots in use; 0 between steps for strategies that hold nothing across steps.
  int taken() const { return taken_; }

 private:
  StateStore& store_;
  Device& device_;
  std::map<std::pair<Category, std::int64_t>, std::deque<Slot>> slots_;
  int taken_ = 0;
};

}  // namespace strata
