// Every buffer that outlives an action of the step belongs to the StateStore; the ledger is the sum of what it holds.
// In a dry run the store's device is "meta": sizes are counted and no memory is taken.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/device.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata {

enum class Category { Parameter, Gathered, Gradient, Optimizer, Activation, Bucket, Staging };
enum class Tier { Device, Host, Disk };
inline constexpr int category_count = 7;
inline constexpr int tier_count = 3;
STRATA_EXPORT const char* to_string(Category category);
STRATA_EXPORT const char* to_string(Tier tier);

// Bytes held, by category and tier.
struct STRATA_EXPORT Ledger {
  using Table = std::array<std::array<std::int64_t, tier_count>, category_count>;
  Table now{};
  Table peak{};                                       // each cell's own highest value
  std::array<std::int64_t, tier_count> total_peak{};  // the highest sum over categories that stood at one moment
  std::int64_t total(Tier tier) const;                // sum over categories, now
};

class STRATA_EXPORT StateStore {
 public:
  // `device` is where Tier::Device buffers live; meta makes every buffer meta.
  explicit StateStore(at::Device device);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  at::Device device() const { return device_; }
  bool dry_run() const { return device_.is_meta(); }

  // A contiguous buffer of `elements`, filled with zeros, that stays until free(). `owner` names it in listings
  // ("zero3: layer 3 gradients"). Throws EnvironmentError with the ledger when memory is exhausted.
  at::Tensor allocate(Category category, Tier tier, const std::string& owner, std::int64_t elements,
                      at::ScalarType dtype);
  // Gives back a buffer of allocate(); throws Bug on any other tensor.
  void free(const at::Tensor& buffer);
  // Counts bytes that live elsewhere: offload regions, tensors that an operator allocated and the engine holds.
  // Negative gives back.
  void count(Category category, Tier tier, std::int64_t bytes);

  const Ledger& ledger() const { return ledger_; }
  // Peaks start again from what is held now.
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

// A reusable buffer for a gathered parameter or a full gradient, with the events that order its uses: whoever fills it
// makes its stream wait for `last_use`, whoever reads it makes its stream wait for `ready`.
class STRATA_EXPORT Slot {
 public:
  // The first `elements` of the slot as `dtype`.
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

// [Note: Slots] Slots of one size class are made when the first step needs them and then kept: a step after the first
// allocates nothing, and as the lowest free slot is taken first, the same program gives every step the same addresses.
// Memory is repointed, never freed inside a step, so there is no race with a caching allocator and no record_stream.
class STRATA_EXPORT SlotPool {
 public:
  SlotPool(StateStore& store, Device& device);
  ~SlotPool();
  // A slot of at least `bytes` that nobody uses; counted under `category`. The slot stays owned by the pool.
  Slot* acquire(Category category, std::int64_t bytes);
  // Gives it back. Throws Bug when it was not taken.
  void release(Slot* slot);
  // Slots taken now; 0 between steps for strategies that hold nothing over a step's end.
  int taken() const { return taken_; }

 private:
  StateStore& store_;
  Device& device_;
  std::map<std::pair<Category, std::int64_t>, std::deque<Slot>> slots_;
  int taken_ = 0;
};

}  // namespace strata
