#pragma once
#include <strata/partitioner.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <cstdint>
#include <deque>
#include <vector>

namespace strata::toolbox {

// How gradients are kept and summed.
struct GradientSharding {
  bool whole =
      false;  // the whole gradient is kept and summed once a step; else each micro-batch's is summed into the parts
  bool reduce_scatter = true;  // else all-reduce, of which each rank uses its parts
  bool overlap = true;         // a sum travels while earlier layers compute
  // Gradients come divided by the tokens of all ranks. Without prescaling they are multiplied, before they are summed,
  // by the number of ranks, rounded up to a power of two, over `predivide_factor`, a power of two too, and sums are
  // divided by the same.
  bool prescale = true;
  double predivide_factor = 1.0;
};

// The gradients of a sharding partitioner: summed over the ranks of `shard`, each getting its parts, and once a step
// over those of `replicate`. A piece travels in place unless the reduction's dtype is another than the gradient's.
class ShardedGradients {
 public:
  // `replicate` may be null. `layouts` by flat parameter id.
  void attach(PartitionContext& context, Group& shard, Group* replicate, std::vector<ShardLayout> layouts,
              const GradientSharding& sharding);

  // Those of Partitioner.
  at::Tensor gradient(FlatParameter& flat, Accumulation accumulation);
  void reduce(FlatParameter& flat, Accumulation accumulation);
  void finish();

  // This rank's part of a piece, padding included: the same memory for the whole run.
  at::Tensor part(const FlatParameter& flat, const ShardLayout::Piece& piece) const;
  // Waits for what is under way and gives slots back.
  void shutdown();

 private:
  // lent: false -> true gradient(), true -> false reduce(); anything else throws Bug.
  struct Home {
    FlatParameter* flat = nullptr;
    ShardLayout layout;
    at::Tensor whole;      // where whole gradients are kept, or this rank's part is the whole
    at::Tensor parts;      // elsewhere
    Slot* slot = nullptr;  // lent for one micro-batch, where whole gradients are not kept
    bool lent = false;
  };
  // A sum under way and the buffers it holds.
  struct Sum {
    Pending pending;
    at::Tensor sum;          // this rank's part of it
    at::Tensor destination;  // where it belongs; may be the same memory
    bool landed = false;     // it is
    bool add = false;        // to what is there
    bool replicas = false;   // then sum the destination over the replicas
    const Home* home = nullptr;
    Slot* staging = nullptr;  // the values in the reduction's dtype
    Slot* slot = nullptr;     // the whole gradient, with its last piece
  };
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  void start_sum(Home& home, const ShardLayout::Piece& piece, const at::Tensor& whole, Accumulation accumulation);
  void start_replica_sum(const Home& home, const at::Tensor& values);
  at::Tensor staged(Sum& sum, const Home& home, const at::Tensor& values);
  void finish_down_to(std::deque<Sum>& sums, std::size_t left);
  void finish(Sum& sum);
  void give_back(Slot*& slot);

  Group* shard_ = nullptr;
  Group* replicate_ = nullptr;  // null also when it has one rank
  SlotPool* slots_ = nullptr;
  GradientSharding sharding_;
  double scale_ = 1.0;       // of values that travel
  std::vector<Home> homes_;  // by flat parameter id
  std::deque<Sum> sums_;
  std::deque<Sum> replica_sums_;
};

}  // namespace strata::toolbox
