#pragma once
#include <strata/partitioner.hpp>
#include <strata/toolbox/shard_layout.hpp>
#include <strata/toolbox/wire_messages.hpp>
#include <strata/weight_code.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace strata::toolbox {

// Storage of parameters.
struct ParameterSharding {
  bool released = false;  // each rank stores only its parts and gathers all for each use; false: parameters stay whole
  bool overlap = true;    // gather new values while the next step's first layers compute
  std::int64_t piece_elements = std::numeric_limits<std::int64_t>::max();  // maximum per collective
  // Maximum elements of a flat parameter that stays whole in spite of `released`, up to model_persistence_threshold
  // elements together.
  std::int64_t persistence_threshold = 0;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  // Compression of gathered values (qwZ of ZeRO++). A rank computes with its own parts as the others decode them;
  // updated and saved values stay exact, so whole parameters have their parts in addition. Values of the second copy
  // are gathered unchanged, because they are decoded ones.
  std::optional<BlockFormat> compression;
  // Code of gathered weights, in place of `compression`; null: none.
  WeightCode* code = nullptr;
};

// Parameters of a sharding partitioner. For a flat parameter that stays whole, each rank updates its parts in place,
// and the new values are gathered once per step; gather() waits for them. A released one is stored in parts; gather()
// fills a slot from all ranks.
class ShardedParameters {
 public:
  // Allocates the buffers. `secondary`, if not null, is a subset of `shard`'s ranks that keeps a second sharded copy of
  // the values after the first gather of a step, so that later gathers of the step stay inside the subset (hpZ of
  // ZeRO++, arXiv:2306.10209).
  void attach(PartitionContext& context, Group& shard, Group* secondary, const ParameterSharding& sharding);

  // Implements the calls of Partitioner.
  void prefetch(FlatParameter& flat);
  void gather(FlatParameter& flat);
  void release(FlatParameter& flat);
  void publish(FlatParameter& flat);

  const ShardLayout& layout(const FlatParameter& flat) const { return home_of(flat).layout; }
  // Returns this rank's part of a piece, with padding.
  BufferRange part(const FlatParameter& flat, const ShardLayout::Piece& piece) const;
  // Waits for pending gathers and releases slots.
  void shutdown();

 private:
  struct Home {
    FlatParameter* flat = nullptr;
    ShardLayout layout;
    bool whole = false;              // the flat parameter stays whole
    Buffer* buffer = nullptr;        // whole values, or this rank's parts; null if it owns none
    ShardLayout secondary_layout;    // layout of the second copy: units do not matter for copies
    at::Tensor secondary;            // this rank's part of the second copy
    bool secondary_current = false;  // the second copy has the current values
    std::unique_ptr<Event> written;  // last write to the parts and `secondary`, on the compute stream
    Slot* slot = nullptr;            // gathered values of a released one
    std::vector<Pending> gathers;    // pending, one per piece
    // State of compressed gathers.
    std::vector<std::unique_ptr<RangeMessages>> compressed;  // by piece
    Buffer* parts = nullptr;                                 // values that this rank updates, if whole
    Slot* messages = nullptr;                                // messages in flight
    at::Tensor magnitudes;                                   // magnitudes of weights that `code` takes, of all ranks

    std::int64_t message_bytes() const;  // bytes of all pieces

    // Returns the elements of a slot: either layout fits, with its padding.
    std::int64_t slot_elements() const {
      return secondary.defined() ? std::max(layout.whole(), secondary_layout.whole()) : layout.whole();
    }
  };
  const Home& home_of(const FlatParameter& flat) const { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  void make_messages(PartitionContext& context, Home& home);
  void measure(Home& home);
  void start_gather(Home& home, const at::Tensor& whole);
  void take_messages(Home& home, StreamKind stream);
  void start_compressed_gather(Home& home);
  void decode(Home& home);
  void give_back_messages(Home& home);
  void keep_secondary(Home& home, const at::Tensor& whole);
  void wait(Home& home);

  Group* shard_ = nullptr;
  Group* secondary_ = nullptr;
  SlotPool* slots_ = nullptr;
  Device* device_ = nullptr;
  ParameterSharding sharding_;
  std::vector<Home> homes_;  // by flat parameter id
};

}  // namespace strata::toolbox
