// The buffers of a rank and their homes. A buffer whose home is another tier lies in a region of an offload device; the
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

namespace strata::state {

// The memory plan: where the buffers of each category rest. Null: on the device.
struct MemoryPlan {
  // A part of what a category holds, by flat parameter or layer.
  struct Home {
    OffloadDevice* device = nullptr;
    std::vector<bool> rests_there;  // by owner; empty: all do
  };
  Home parameters;
  Home optimizer;                           // its state, and the gradients that it reads
  std::vector<bool> gradients_too;          // by owner whose state rests elsewhere; empty: all
  Home activations;                         // inputs of recomputed layers
  const Home* of(Category category) const;  // null: no key gives it a home
  // Null: the device.
  OffloadDevice* home_of(Category category, int owner) const;
};

// Which of things with these sizes leave, so that they are `ratio` of the whole, or as near to it as they can be, and
// are spread over the rest: the same on all ranks that have things of these sizes.
std::vector<bool> part_of(const std::vector<std::int64_t>& sizes, double ratio);

using runtime::Moved;

enum class Access { Read, Write /* reads too */ };

class Buffers {
 public:
  // `on_host`: the run's device is the host's processors, which address what an offload device maps.
  Buffers(StateStore& store, Device& device, const MemoryPlan& plan, bool on_host);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Zeros. A resident buffer's home is the device whatever the plan says.
  Buffer& make(const Moved& moved, const std::string& name, std::int64_t elements, at::ScalarType dtype,
               bool resident = false);
  // Whether the owner's buffers of the category, resident ones apart, are away from the device between their uses.
  bool moves(Category category, int owner) const;
  // What so many bytes of a buffer of this category and owner are at home.
  std::int64_t bytes_at_home(Category category, int owner, std::int64_t bytes) const;

  const MemoryPlan& plan() const { return plan_; }
  // Bytes of those that are away from the device between their uses; 0: they do not move.
  std::int64_t moving_bytes(const Moved& moved) const;
  // Whether bytes move while the host does something else: what is mapped is copied when it is asked for.
  bool moves_in_background() const;
  // The optimizer's update runs on the host's processors, while the run's device is another.
  bool updates_on_host() const {
    return !on_host_ && plan_.optimizer.device != nullptr && plan_.optimizer.device->limits().mapped;
  }

  // Makes room on the device for buffers that come and leave in this order, once or over and over. Nothing is here that
  // does not stay.
  struct Movement {
    Moved moved;
    bool comes = false;  // fetch(); else what was changed has settled, or what was not is stored
  };
  void make_room(const std::vector<Movement>& movements);
  // Bytes of that room which are taken.
  std::int64_t staged_bytes() const { return staging_.taken(); }

  // Starts to bring them to the device, with what they hold or with anything.
  void fetch(const Moved& moved, bool contents);
  // They are here. May block the host.
  void await(const Moved& moved);
  // Takes them away; what was `changed` starts on its way home.
  void store(const Moved& moved, bool changed);
  // What was changed has arrived at home. May block the host.
  void settle(const Moved& moved);

  // Bytes that fetch() brought and store() sent home since the beginning.
  struct Traffic {
    std::int64_t read = 0;
    std::int64_t written = 0;
  };
  const Traffic& traffic() const { return traffic_; }

  // Where the optimizer's update reads and writes the range: at home if it updates on the host, else on the device.
  at::Tensor for_update(const BufferRange& range) const;
  at::ScalarType dtype(const BufferRange& range) const;

  // Between steps: the range's elements, wherever they rest; changes are written there. Blocks the host.
  void with(const BufferRange& range, Access access, const std::function<void(const at::Tensor&)>& work) const;

 private:
  struct Resting {
    Resting(std::string name, Category of) : buffer(std::move(name)), category(of) {}
    Buffer buffer;
    Category category;
    OffloadDevice* home = nullptr;  // null: the device
    at::Tensor memory;              // at home; undefined where neither the host nor the device addresses it
    Region region;
    bool stays = true;
    std::int64_t elements = 0;
    at::ScalarType dtype = at::kFloat;
    // Of one that does not stay: from its fetch() to its store() or, where it was changed, settle().
    std::int64_t place = 0;              // in the staging memory
    std::unique_ptr<Transfer> transfer;  // under way
    at::Tensor staged;
    std::unique_ptr<Event> ready;
  };
  void reserve(Resting& resting, const std::string& name);
  const Resting& of(const BufferRange& range) const;
  static at::Tensor here(const Resting& resting);  // its tensor on the device
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
  std::unique_ptr<ThroughHost> through_host_;  // where a home reaches the device only through the host
  Traffic traffic_;
  std::deque<Resting> buffers_;
  std::map<Moved, std::vector<Resting*>> moving_;  // that do not stay
  std::map<const Buffer*, Resting*> by_buffer_;
};

}  // namespace strata::state
