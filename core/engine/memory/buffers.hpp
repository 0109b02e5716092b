// The buffers of a rank and their homes. A buffer whose home is another tier has a region of an offload device; the
// program of the step brings it to the device before its uses and stores it after them (program/tiers.cpp).
#pragma once
#include <strata/buffer.hpp>
#include <strata/offload_device.hpp>
#include <strata/state_store.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory/staging.hpp"
#include "memory/through_host.hpp"
#include "program/instruction.hpp"

namespace strata::memory {

// Memory plan: the home of the buffers of each category.
struct MemoryPlan {
  // Home of some buffers of a category, chosen by owner (flat parameter or layer); `device` null: the rank's device.
  struct Home {
    OffloadDevice* device = nullptr;
    std::vector<bool> rests_there;  // true, by owner, for buffers with this home; empty: all
  };
  Home parameters;
  Home optimizer;                           // optimizer state, and the gradients that the optimizer reads
  std::vector<bool> gradients_too;          // true, by owner, if gradients follow the state to its home; empty: all
  Home activations;                         // inputs of recomputed layers
  const Home* of(Category category) const;  // null: the config sets no home
  // Returns the home of an owner's buffers; null: the device.
  OffloadDevice* home_of(Category category, int owner) const;
};

// Selects items of these sizes that make up `ratio` of the total, as nearly as possible, spread evenly; deterministic
// in the sizes, so equal on all ranks with equal sizes.
std::vector<bool> part_of(const std::vector<std::int64_t>& sizes, double ratio);

using program::Moved;

enum class Access { Read, Write /* reads too */ };

class Buffers {
 public:
  // Creates no buffer yet. `on_host`: the run's device is the CPU, which addresses memory that an offload device maps.
  Buffers(StateStore& store, Device& device, const MemoryPlan& plan, bool on_host);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Makes a buffer of zeros. A resident buffer's home is the device, independently of the plan.
  Buffer& make(const Moved& moved, const std::string& name, std::int64_t elements, at::ScalarType dtype,
               bool resident = false);
  // True if the owner's buffers of the category, except resident ones, are away from the device between their uses.
  bool moves(Category category, int owner) const;
  // Returns the bytes at home of a buffer of `bytes` bytes of this category and owner.
  std::int64_t bytes_at_home(Category category, int owner, std::int64_t bytes) const;

  const MemoryPlan& plan() const { return plan_; }
  // Returns the bytes of buffers that are away from the device between their uses; 0: they do not move.
  std::int64_t moving_bytes(const Moved& moved) const;
  // True if bytes move while the host works on; false for mapped memory, which is copied on demand.
  bool moves_in_background() const;
  // True if the optimizer updates on the CPU while the run's device is another.
  bool updates_on_host() const {
    return !on_host_ && plan_.optimizer.device != nullptr && plan_.optimizer.device->limits().mapped;
  }

  // Makes room on the device for buffers that come and leave in this order, once or repeatedly. Requires that all
  // moving buffers are away.
  struct Movement {
    Moved moved;
    bool comes = false;  // true: fetch(); false: settle() if changed, otherwise store()
  };
  void make_room(const std::vector<Movement>& movements);
  // Returns the bytes in use of the room on the device.
  std::int64_t staged_bytes() const { return staging_.taken(); }

  // Starts to bring buffers to the device, with their contents or with unspecified contents.
  void fetch(const Moved& moved, bool contents);
  // Waits until fetched buffers are on the device. May block the host.
  void await(const Moved& moved);
  // Takes buffers away from the device; if `changed`, starts to write them home.
  void store(const Moved& moved, bool changed);
  // Waits until stored, changed buffers are written home. May block the host.
  void settle(const Moved& moved);

  // Bytes read by fetch() and written by store() since the beginning.
  struct Traffic {
    std::int64_t read = 0;
    std::int64_t written = 0;
  };
  const Traffic& traffic() const { return traffic_; }

  // Returns the range's memory for the optimizer's update: at home if the update runs on the CPU, else on the device.
  at::Tensor for_update(const BufferRange& range) const;
  at::ScalarType dtype(const BufferRange& range) const;

  // Calls `work` with the range's elements, between steps, and writes changes to their home. Blocks the host.
  void with(const BufferRange& range, Access access, const std::function<void(const at::Tensor&)>& work) const;

 private:
  struct Resting {
    Resting(std::string name, Category of) : buffer(std::move(name)), category(of) {}
    Buffer buffer;
    Category category;
    OffloadDevice* home = nullptr;  // null: the device
    at::Tensor memory;              // memory of the home; undefined if neither host nor device can address it
    Region region;
    bool stays = true;
    std::int64_t elements = 0;
    at::ScalarType dtype = at::kFloat;
    // State of a moving buffer from its fetch() to its store() or, if changed, settle().
    std::int64_t place = 0;              // place in the staging memory
    std::unique_ptr<Transfer> transfer;  // transfer in flight
    at::Tensor staged;
    std::unique_ptr<Event> ready;
  };
  void reserve(Resting& resting, const std::string& name);
  const Resting& of(const BufferRange& range) const;
  static at::Tensor here(const Resting& resting);  // tensor on the device
  const std::vector<Resting*>& that_move(const Moved& moved) const;
  static std::size_t bytes_at_home(const Resting& resting);
  void leave(Resting& resting);
  std::unique_ptr<Transfer> read(const Resting& resting);
  std::unique_ptr<Transfer> write(const Resting& resting);

  StateStore& store_;
  Device& device_;
  Staging staging_;
  MemoryPlan plan_;
  bool on_host_;
  std::unique_ptr<ThroughHost> through_host_;  // for homes that reach the device only through the host
  Traffic traffic_;
  std::deque<Resting> buffers_;
  std::map<Moved, std::vector<Resting*>> moving_;  // buffers that move
  std::map<const Buffer*, Resting*> by_buffer_;
};

}  // namespace strata::memory
