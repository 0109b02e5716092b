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

// How parameters are stored.
struct ParameterSharding {
  bool released = false;  // each rank keeps only its parts and gathers all for each use; else parameters stay whole
  bool overlap = true;    // gather new values while the next step's first layers compute
  std::int64_t piece_elements = std::numeric_limits<std::int64_t>::max();  // maximum per collective
  // With `released`: flat parameters of at most persistence_threshold elements stay whole all the same, up to
  // model_persistence_threshold elements together.
  std::int64_t persistence_threshold = 0;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  // Values are gathered as compressed messages (qwZ of ZeRO++). A rank computes with its own parts as the others decode
  // them; what it updates and saves stays exact, so whole parameters have their parts beside them. From the second copy
  // values are gathered as they are: they are decoded ones.
  std::optional<BlockFormat> compression;
  // Weights that it takes are gathered in its bytes, in the same way. Null: none are. Not with `compression`.
  WeightCode* code = nullptr;
};

// The parameters of a sharding partitioner. For a flat parameter that stays whole, each rank updates its parts in
// place, and the new values are gathered once per step; gather() waits for them. A released one is stored in parts;
// gather() fills a slot from all ranks.
class ShardedParameters {
 public:
  // `secondary` may be null. Otherwise it is a subset of `shard`'s ranks, which keep a second sharded copy of the
  // values after the first gather of a step, so that later gathers of the step stay inside the subset (hpZ of ZeRO++,
  // arXiv:2306.10209).
  void attach(PartitionContext& context, Group& shard, Group* secondary, const ParameterSharding& sharding);

  // As in Partitioner.
  void prefetch(FlatParameter& flat);
  void gather(FlatParameter& flat);
  void release(FlatParameter& flat);
  void publish(FlatParameter& flat);

  const ShardLayout& layout(const FlatParameter& flat) const { return home_of(flat).layout; }
  // This rank's part of a piece, with padding.
  BufferRange part(const FlatParameter& flat, const ShardLayout::Piece& piece) const;
  // Waits for pending gathers and releases slots.
  void shutdown();

 private:
  struct Home {
    FlatParameter* flat = nullptr;
    ShardLayout layout;
    bool whole = false;              // it stays whole
    Buffer* buffer = nullptr;        // whole, or this rank's parts; null if it owns none
    ShardLayout secondary_layout;    // of the second copy: no unit matters to what is only copied
    at::Tensor secondary;            // this rank's part of it
    bool secondary_current = false;  // the second copy has the current values
    std::unique_ptr<Event> written;  // last write to the parts and `secondary`, on the compute stream
    Slot* slot = nullptr;            // the gathered values, if it is released
    std::vector<Pending> gathers;    // pending, one per piece
    // Of compressed gathers.
    std::vector<std::unique_ptr<RangeMessages>> compressed;  // by piece
    Buffer* parts = nullptr;                                 // of a whole one: what this rank updates
    Slot* messages = nullptr;                                // while they are under way
    at::Tensor magnitudes;                                   // of the weights that `code` takes, on any rank

    std::int64_t message_bytes() const;  // of all pieces

    // Of a slot: either layout fits, with its padding.
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
