#pragma once
#include <strata/own_exchange.hpp>
#include <strata/partitioner.hpp>
#include <strata/toolbox/compressed_sums.hpp>
#include <strata/toolbox/row_sums.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace strata::toolbox {

// Storage and reduction of gradients.
struct GradientSharding {
  bool whole = false;  // keep full gradients and reduce once per step; else reduce each micro-batch into the parts
  bool reduce_scatter = true;  // else all-reduce; each rank uses its parts
  bool overlap = true;         // reduce while other layers compute
  // True: gradients, already divided by the tokens of all ranks, are reduced as they are. False: they are multiplied
  // before the reduction by the number of ranks, rounded up to a power of two, divided by `predivide_factor`, also a
  // power of two; the sums are divided by the same number.
  bool prescale = true;
  double predivide_factor = 1.0;
  // Compression of the sums; then neither the reduction's dtype nor the scaling has an effect.
  std::optional<GradientCompression> compression;
  bool rows = false;  // sum only touched rows of an embedding if that sends less (RowSums); not with compression
  // Registry of own exchange: full gradients stay unreduced in updates that leave them local; null: all are reduced.
  const OwnExchange* exchange = nullptr;
};

// Gradients of a sharding partitioner: reduced over the ranks of `shard`, each rank getting its parts, and once per
// step over the ranks of `replicate`. A piece is reduced in place unless the reduction has another dtype than the
// gradient.
class ShardedGradients {
 public:
  // Allocates buffers. `replicate` may be null. `layouts` is indexed by flat parameter id. Returns text to log, or "".
  std::string attach(PartitionContext& context, Group& shard, Group* replicate, std::vector<ShardLayout> layouts,
                     const GradientSharding& sharding);

  // Implements the calls of Partitioner.
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation);
  void reduce(FlatParameter& flat, Accumulation accumulation);
  void finish(FlatParameter& flat);

  // Returns this rank's part of a piece, with padding.
  BufferRange part(const FlatParameter& flat, const ShardLayout::Piece& piece) const;
  // Waits for pending reductions and releases slots.
  void shutdown();
  // Saves and loads as in Plugin. load() returns text to log, or "".
  void save(StateWriter& writer) const { compressed_.save(writer); }
  std::string load(const StateReader& reader) { return compressed_.load(reader); }

 private:
  // A flat parameter's gradient. `lent` becomes true in gradient() and false in reduce(); any other order throws Bug.
  struct Home {
    FlatParameter* flat = nullptr;
    ShardLayout layout;
    bool whole = false;        // the buffer holds the full gradient: it is stored whole, or there is one rank
    Buffer* buffer = nullptr;  // the full gradient, or this rank's parts; null if frozen
    Slot* slot = nullptr;      // full gradient of one micro-batch, if not kept
    bool lent = false;

    std::size_t number_of(const ShardLayout::Piece& piece) const {
      return static_cast<std::size_t>(&piece - layout.pieces().data());
    }
  };
  // A pending reduction and its buffers.
  struct Sum {
    Pending pending;
    at::Tensor sum;          // this rank's part of the sum
    at::Tensor destination;  // final place; may be the same memory. Undefined if another rank owns the piece
    bool in_place = false;   // sum and destination are the same memory
    bool add = false;        // add to the destination instead of overwriting it
    bool replicas = false;   // then sum the destination over the replicas
    const Home* home = nullptr;
    const ShardLayout::Piece* piece = nullptr;
    CompressedExchange compressed;    // compressed sum, in place of pending and sum
    std::optional<RowExchange> rows;  // all-reduce of rows, in place of pending
    bool shares = false;              // then gather the replicas' sums
    Slot* staging = nullptr;          // the values in the reduction's dtype
    Slot* slot = nullptr;             // the full gradient's slot; set for its last piece
  };
  Home& home_of(const FlatParameter& flat) { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  void start_sum(Home& home, const ShardLayout::Piece& piece, const at::Tensor& whole, Accumulation accumulation);
  void start_compressed_sum(Home& home, const ShardLayout::Piece& piece, const at::Tensor& values,
                            Accumulation accumulation);
  void start_replica_sum(const Home& home, const ShardLayout::Piece& piece, const at::Tensor& values);
  void start_replica_gather(const Sum& sum);
  at::Tensor staged(Sum& sum, const Home& home, const at::Tensor& values);
  void finish_down_to(std::deque<Sum>& sums, std::size_t left);
  void finish_all();
  void finish(Sum& sum);
  void give_back(Sum& sum);
  void give_back(Slot*& slot);

  Group* shard_ = nullptr;
  Group* replicate_ = nullptr;  // null also with one rank
  SlotPool* slots_ = nullptr;
  GradientSharding sharding_;
  double scale_ = 1.0;       // factor on values before the reduction
  std::vector<Home> homes_;  // by flat parameter id
  std::deque<Sum> sums_;
  std::deque<Sum> replica_sums_;
  std::deque<Sum> replica_gathers_;  // gathers of compressed sums
  CompressedSums compressed_;
  RowSums row_sums_;
};

}  // namespace strata::toolbox
