#pragma once
#include <strata/plugin_context.hpp>
#include <strata/toolbox/sharded_gradients.hpp>
#include <strata/toolbox/sharded_parameters.hpp>

#include <functional>
#include <string>
#include <vector>

namespace strata::toolbox {

struct ShardingSettings {
  ParameterSharding parameters;
  GradientSharding gradients;
  Lookahead lookahead;     // for released parameters
  bool replicas = false;   // groups() has a group "replicate" of ranks that own the same parts
  bool secondary = false;  // groups() has a group "secondary", see ShardedParameters::attach
  std::function<void(LogLevel, const std::string&)> log = {};  // log of messages about compression
};

// A partitioner of the ZeRO family: every rank of group "shard" gets an equal part of every layer if the optimizer
// allows the cut, otherwise whole units of about equal total size (ShardLayout). A derived class defines the groups and
// turns its options into settings.
//
// Logical bytes that one of N ranks sends in a step of A micro-batches, where P and R are the bytes of all parameters
// in the parameter dtype and in the reduction dtype, with padding:
//
// - parameters that stay whole: P (N-1)/N, while the next step's first layers compute;
// - released parameters: G P (N-1)/N, where G is 2A (one gather per forward and backward) if none stay gathered,
//   and A for a layer whose backward reads no weights;
// - gradients reduced per micro-batch: A R (N-1)/N; once per step: R (N-1)/N; twice as much by all-reduce;
// - if r ranks own the same parts: additionally 2 R/N (r-1)/r per step, unless the engine averages weights over them
//   (PartitionContext::sums_replicas);
// - touched rows of an embedding (RowSums): at most one bit per row and rank more than a dense sum.
//
// With compression, P and R are 1 or 1/2 byte per element plus 4 bytes per block (WireMessages); of the two R/N per
// step among replicas, the second is 1 byte per element. Sums then use all-to-all, which sends as much as a
// reduce-scatter. For weights in the precision policy's byte code, P is 1 byte per element (EncodedMessages), and 4
// bytes per weight are all-reduced once per step.
class ShardedPartitioner : public Partitioner {
 public:
  void attach(PartitionContext& context) override;
  Lookahead lookahead() const override;
  void prefetch(FlatParameter& flat, Phase) override { parameters_.prefetch(flat); }
  void gather(FlatParameter& flat, Phase) override { parameters_.gather(flat); }
  void release(FlatParameter& flat, Phase) override { parameters_.release(flat); }
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    return gradients_.gradient(flat, accumulation);
  }
  void reduce(FlatParameter& flat, Accumulation accumulation) override { gradients_.reduce(flat, accumulation); }
  void finish_gradient(FlatParameter& flat) override { gradients_.finish(flat); }
  std::vector<Slice> owned() override;
  void publish(FlatParameter& flat) override { parameters_.publish(flat); }
  Group* replicas() override { return replicate_; }
  void shutdown() override;
  void save(StateWriter& writer) const override { gradients_.save(writer); }
  void load(StateReader& reader, int version) override;

 protected:
  explicit ShardedPartitioner(const ShardingSettings& settings) : settings_(settings) {}

 private:
  // Logs what is compressed. `summed_over`: the group of the second hop of sums of gradients; null: none.
  void say_what_is_compressed(const Group* summed_over) const;

  ShardingSettings settings_;
  Group* shard_ = nullptr;
  Group* replicate_ = nullptr;
  std::vector<FlatParameter*> flat_parameters_;
  ShardedParameters parameters_;
  ShardedGradients gradients_;
};

}  // namespace strata::toolbox
