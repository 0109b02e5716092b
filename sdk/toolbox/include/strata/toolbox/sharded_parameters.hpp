#pragma once
#include <strata/partitioner.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace strata::toolbox {

// How parameters are kept.
struct ParameterSharding {
  bool released =
      false;  // each rank keeps its parts only, and the whole is gathered around its use; else the whole stays
  bool overlap = true;  // new values travel while the next step's first layers compute
  std::int64_t piece_elements = std::numeric_limits<std::int64_t>::max();  // of one collective, at most
  // With `released`: flat parameters of at most so many elements stay whole nevertheless, until they are so many
  // together.
  std::int64_t persistence_threshold = 0;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
};

// The parameters of a sharding partitioner. One that stays whole is updated in place, each rank its parts, and its new
// values are gathered once a step; gather() waits for them. One that is released lies in parts; gather() fills a slot
// from all ranks.
class ShardedParameters {
 public:
  // `secondary` may be null. Otherwise it holds some of `shard`'s ranks, and they keep what they gathered after an
  // update in parts among themselves: later gathers of the step do not leave the group (hpZ of ZeRO++,
  // arXiv:2306.10209).
  void attach(PartitionContext& context, Group& shard, Group* secondary, const ParameterSharding& sharding);

  // Those of Partitioner.
  void prefetch(FlatParameter& flat);
  void gather(FlatParameter& flat);
  void release(FlatParameter& flat);
  void publish(FlatParameter& flat);

  const ShardLayout& layout(const FlatParameter& flat) const { return home_of(flat).layout; }
  // This rank's part of a piece, padding included: the same memory for the whole run.
  at::Tensor part(const FlatParameter& flat, const ShardLayout::Piece& piece) const;
  // Waits for what is under way and gives slots back.
  void shutdown();

 private:
  struct Home {
    FlatParameter* flat = nullptr;
    ShardLayout layout;
    at::Tensor whole;                // of one that stays
    at::Tensor parts;                // of one that is released
    at::Tensor secondary;            // the group's parts of what was gathered last
    bool secondary_current = false;  // the values have not changed since
    std::unique_ptr<Event> written;  // to `parts` and `secondary`, on the compute stream
    Slot* slot = nullptr;            // the gathered values of one that is released
    std::vector<Pending> gathers;    // under way, one a piece
  };
  const Home& home_of(const FlatParameter& flat) const { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  void start_gather(Home& home, const at::Tensor& whole);
  void keep_secondary(Home& home, const at::Tensor& whole);
  static void wait(Home& home);

  Group* shard_ = nullptr;
  Group* secondary_ = nullptr;
  SlotPool* slots_ = nullptr;
  Device* device_ = nullptr;
  ParameterSharding sharding_;
  std::vector<Home> homes_;  // by flat parameter id
};

}  // namespace strata::toolbox
