#pragma once
#include <strata/toolbox/sharded_gradients.hpp>
#include <strata/toolbox/sharded_parameters.hpp>

#include <vector>

namespace strata::toolbox {

struct ShardingSettings {
  ParameterSharding parameters;
  GradientSharding gradients;
  Lookahead lookahead;     // of released parameters
  bool replicas = false;   // groups() names a group "replicate": ranks that own the same parts
  bool secondary = false;  // groups() names a group "secondary", see ShardedParameters::attach
};

// A partitioner that gives every rank of group "shard" an equal part of every layer: all of the ZeRO family but its
// groups, which the deriving class names, and its options, which it turns into settings.
//
// Logical bytes that a rank of N sends in a step of A micro-batches, where P and R are the bytes of all parameters in
// their own dtype and in the reduction's, padding included:
//
// - parameters that stay: P (N-1)/N, while the next step's first layers compute;
// - parameters that are released: G P (N-1)/N, where G is 2A, one for each forward and backward, where none are kept;
// - gradients of each micro-batch: A R (N-1)/N; summed once: R (N-1)/N; by all-reduce twice as much;
// - where r ranks own the same parts: 2 R/N (r-1)/r beside that, once.
class ShardedPartitioner : public Partitioner {
 public:
  void attach(PartitionContext& context) override;
  Lookahead lookahead() const override;
  void prefetch(FlatParameter& flat, Phase) override { parameters_.prefetch(flat); }
  void gather(FlatParameter& flat, Phase) override { parameters_.gather(flat); }
  void release(FlatParameter& flat, Phase) override { parameters_.release(flat); }
  at::Tensor gradient(FlatParameter& flat, Accumulation accumulation) override {
    return gradients_.gradient(flat, accumulation);
  }
  void reduce(FlatParameter& flat, Accumulation accumulation) override { gradients_.reduce(flat, accumulation); }
  void finish_gradients() override { gradients_.finish(); }
  std::vector<Slice> owned() override;
  void publish(FlatParameter& flat) override { parameters_.publish(flat); }
  void shutdown() override;

 protected:
  explicit ShardedPartitioner(const ShardingSettings& settings) : settings_(settings) {}

 private:
  ShardingSettings settings_;
  Group* shard_ = nullptr;
  Group* replicate_ = nullptr;
  std::vector<FlatParameter*> flat_parameters_;
  ShardedParameters parameters_;
  ShardedGradients gradients_;
};

}  // namespace strata::toolbox
