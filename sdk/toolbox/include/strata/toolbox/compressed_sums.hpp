#pragma once
#include <strata/partitioner.hpp>
#include <strata/state_stream.hpp>
#include <strata/toolbox/shard_layout.hpp>
#include <strata/toolbox/wire_messages.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace strata::toolbox {

// Compression of gradients in collectives.
struct GradientCompression {
  BlockFormat format;
  bool error_feedback = false;
  double error_beta = 0.8;
  std::int64_t error_reset = 1024;  // updates after which errors are reset to zeros
};

// One exchange in flight: once `pending` has ended, arrived() writes the result and returns `messages` to the pool.
struct CompressedExchange {
  std::vector<Pending> pending;
  std::function<void()> arrived;
  Slot* messages = nullptr;
};

// Sums of gradients by compressed messages (qgZ of ZeRO++, arXiv:2306.10209). Each rank compresses its values for each
// other rank, all_to_all moves them, and the receiver sums in fp32 in rank order: the sum does not depend on the order
// of arrival, and nothing is compressed twice. In a second hop, across the groups, ranks that own the same part then
// sum their sums in the same way and exchange the results in 8 bits, so that all have equal values.
//
// With error feedback (LoCo, arXiv:2407.04480) a rank adds the errors of its earlier messages to a gradient. Errors
// belong to the rank: one byte per element of a whole gradient, scaled by the loss scale of their step.
class CompressedSums {
 public:
  // Allocates messages and errors. `replicate` may be null. `layouts` is indexed by flat parameter id.
  void attach(PartitionContext& context, Group& shard, Group* replicate, const std::vector<ShardLayout>& layouts,
              const GradientCompression& compression);

  // Prepares an update; called before its first exchange of this flat parameter. Resets the errors if that is due.
  void update_begins(const FlatParameter& flat);
  // Starts the sum of `values`, all of piece number `piece` (ShardLayout::pieces), over the ranks of `shard`. arrived()
  // writes this rank's part of the sum to `destination`, or adds it if `add`. `destination` is undefined if this rank
  // has no part. [collective]
  CompressedExchange sum(const FlatParameter& flat, std::size_t piece, const at::Tensor& values,
                         const at::Tensor& destination, bool add);
  // Steps of the second hop, over the ranks that own the part `values`: sum_over_replicas() starts the sum of this
  // rank's share of it, and gather_over_replicas() then the gather of all shares, both in place. [collective]
  CompressedExchange sum_over_replicas(const FlatParameter& flat, std::size_t piece, const at::Tensor& values);
  CompressedExchange gather_over_replicas(const FlatParameter& flat, std::size_t piece, const at::Tensor& values);

  // Saves and loads the errors. load() returns text to log: why they begin with zeros; "" if they were loaded.
  void save(StateWriter& writer) const;
  std::string load(const StateReader& reader);

 private:
  struct Messages {
    WireMessages of;
    at::Tensor errors;  // errors of a piece; undefined without feedback
    int owner = -1;     // owner of a piece that is not in parts
  };
  struct Home {
    std::vector<Messages> pieces, shares, sums;  // messages by piece: first hop; second hop, and its sums
    at::Tensor errors;                           // all of them
    std::int64_t updates = 0;
  };
  const Home& home_of(const FlatParameter& flat) const { return homes_[static_cast<std::size_t>(flat.info().id)]; }
  CompressedExchange exchange(Group& group, const Messages& own, const at::Tensor& values,
                              const at::Tensor& destination, bool add);
  Slot* messages(std::int64_t count, const WireMessages& of);
  void encode(const Messages& messages, const at::Tensor& values, const at::Tensor& into) const;
  void keep_errors(PartitionContext& context, const FlatParameterInfo& flat, Home& home);

  Group* shard_ = nullptr;
  Group* replicate_ = nullptr;
  SlotPool* slots_ = nullptr;
  GradientCompression compression_;
  std::vector<Home> homes_;  // by flat parameter id
  std::string layout_;       // layout of the errors, saved with them
};

}  // namespace strata::toolbox
