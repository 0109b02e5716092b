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

// How gradients are compressed on their way.
struct GradientCompression {
  BlockFormat format;
  bool error_feedback = false;
  double error_beta = 0.8;
  std::int64_t error_reset = 1024;  // updates after which errors begin with zeros again
};

// One exchange under way: once `pending` has ended, arrived() writes the result, and `messages` goes back.
struct CompressedExchange {
  std::vector<Pending> pending;
  std::function<void()> arrived;
  Slot* messages = nullptr;
};

// Sums of gradients by compressed messages (qgZ of ZeRO++, arXiv:2306.10209). Each rank compresses what it has for each
// other, all_to_all moves it, and the receiver adds up in fp32 in the order of the ranks: the sum does not depend on
// who comes first, and nothing is compressed twice. Ranks that own the same part then do the same with their sums, and
// send each other what came of it, in 8 bits, so that all have the same: a second hop, across the groups.
//
// With error feedback (LoCo, arXiv:2407.04480) a rank adds to a gradient what its earlier messages lost of it. The
// errors are this rank's: one byte per element of a whole gradient. They are of the loss scale of their time.
class CompressedSums {
 public:
  // `replicate` may be null. `layouts` is indexed by flat parameter id.
  void attach(PartitionContext& context, Group& shard, Group* replicate, const std::vector<ShardLayout>& layouts,
              const GradientCompression& compression);

  // Before an update's first exchange of this flat parameter.
  void update_begins(const FlatParameter& flat);
  // The sum over the ranks of a piece: destination = this rank's part, or += it; undefined where it has none.
  CompressedExchange sum(const FlatParameter& flat, std::size_t piece, const at::Tensor& values,
                         const at::Tensor& destination, bool add);
  // Over the ranks that own the same part, `values`: the sum of this rank's share of it, and then all shares.
  CompressedExchange sum_over_replicas(const FlatParameter& flat, std::size_t piece, const at::Tensor& values);
  CompressedExchange gather_over_replicas(const FlatParameter& flat, std::size_t piece, const at::Tensor& values);

  // The errors. load() gives what is to be logged: why they begin with zeros.
  void save(StateWriter& writer) const;
  std::string load(const StateReader& reader);

 private:
  struct Messages {
    WireMessages of;
    at::Tensor errors;  // undefined without feedback
    int owner = -1;     // of a piece that is not in parts
  };
  struct Home {
    std::vector<Messages> pieces, shares, sums;  // by piece; of replicas, and of their sums
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
  std::string layout_;       // what errors belong to: in a checkpoint beside them
};

}  // namespace strata::toolbox
