#pragma once
#include <strata/partitioner.hpp>

#include <string>
#include <vector>

#include "memory/buffers.hpp"
#include "stage/layers.hpp"
#include "state/layout.hpp"

namespace strata::stage {

// This rank's flat parameters and the buffers of its state, each with its home.
class Values final : public PartitionContext {
 public:
  // Lays the parameters out, chooses homes and attaches the partitioner, which allocates its buffers. [collective]
  Values(const Setup& setup, config::StepPolicy policy, Memory& memory, Groups& groups, const Layers& layers);

  const state::Layout& layout() const { return layout_; }
  memory::Buffers& buffers() { return buffers_; }
  const memory::Buffers& buffers() const { return buffers_; }
  FlatParameter& flat(int id) const { return *flat_parameters_[static_cast<std::size_t>(id)]; }

  // The partitioner's context.
  const std::vector<FlatParameter*>& flat_parameters() const override { return flat_parameters_; }
  Group& group(const std::string& name) override;
  Buffer& buffer(const BufferRequest& request) override;
  bool moves(Category category) const override { return buffers_.plan().of(category) != nullptr; }
  bool sums_replicas() const override { return policy_ != config::StepPolicy::Local; }
  StateStore& store() override { return memory_.store(); }
  SlotPool& slots() override { return memory_.slots(); }
  Device& device() override { return memory_.device(); }

 private:
  Memory& memory_;
  Groups& groups_;
  std::string partitioner_;  // name in messages
  config::StepPolicy policy_;
  state::Layout layout_;
  std::vector<FlatParameter*> flat_parameters_;
  memory::Buffers buffers_;
  const PluginsStop stop_;
};

}  // namespace strata::stage
