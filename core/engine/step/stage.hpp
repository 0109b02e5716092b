#pragma once
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/group.hpp>
#include <strata/model.hpp>
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>
#include <strata/precision_policy.hpp>
#include <strata/scheduler.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "group/group_provider.hpp"
#include "memory/buffers.hpp"
#include "state/host_copies.hpp"
#include "state/layout.hpp"
#include "state/optimizer_state.hpp"
#include "state/parameter_sums.hpp"
#include "step/input_bytes.hpp"
#include "step/input_parts.hpp"
#include "step/linear.hpp"
#include "step/local_training.hpp"

namespace strata::runtime {

// This process among those of the run.
struct RankNumbers {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
};

// A plugin with the name that errors give it.
template <typename Kind>
struct NamedPlugin {
  Kind* plugin = nullptr;
  std::string name;  // "partitioner/zero3"
  Kind* operator->() const { return plugin; }
  Kind& operator*() const { return *plugin; }
};

// One layer of this rank.
struct StageLayer {
  int number = 0;  // in the whole model
  LayerInfo info;
  std::unique_ptr<Layer> layer;
  bool recompute = false;
};

// Where the optimizer exchanges: one flat parameter's gradient, while it stays each rank's own.
struct OwnGradient {
  Buffer lent{"a rank's own gradient"};  // what the partitioner lent last
  std::vector<Piece> pieces;             // its parameters, whole: only info is set, and gradient, which lies in `lent`
};

class OwnExchangeHost;

// All that one rank computes with: its layers, their parameters and state, and the strategies that move them. Made by
// the Session, read by the executor.
struct StageState {
  int rank = 0;
  int stage = 0;
  int layers_in_model = 0;
  // How many updates every chunk makes within the step; 0: one, at its end, where all ranks know the gradient's norm.
  int updates_within_step = 0;
  // The first layer of the model with a parameter that is not frozen: none before it needs a backward.
  int first_trainable = 0;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<SlotPool> slots;
  std::unique_ptr<state::Buffers> buffers;
  Placement placement;
  std::vector<StageLayer> layers;       // ascending numbers
  std::vector<LayerInfo> model_layers;  // every layer of the model
  state::Layout layout;
  NamedPlugin<Device> device;
  NamedPlugin<Partitioner> partitioner;
  NamedPlugin<PrecisionPolicy> precision;
  NamedPlugin<Optimizer> optimizer;
  std::string model_name;
  std::unique_ptr<state::OptimizerState> optimizer_state;
  std::unique_ptr<state::ParameterSums> sums;  // null in an evaluation
  // What the inputs of recomputed layers rest in between forward and backward, by layer and Instruction::input_buffer.
  std::map<std::pair<int, int>, Buffer*> input_buffers;
  std::unique_ptr<state::HostCopies> host_copies;  // null where the optimizer updates on the device
  // As the last Norm gave them, so that a kept gradient is applied with those of its own step. Before the first Norm
  // there is nothing to apply. Where updates are made within the step, those with which it began.
  StepScalars scalars;
  Linear* linear = nullptr;
  OwnExchangeHost* own_exchange = nullptr;   // null in a test without a session
  std::map<int, OwnGradient> own_gradients;  // by flat parameter; empty where the optimizer does not exchange
  Group* world = nullptr;
  std::map<int, Group*> holders;       // by flat parameter that other stages hold too: this rank's peers on them
  Group* tensor = nullptr;             // the ranks that share its layers; null: it has them alone
  bool sequence_parallel = false;      // see [Note: tensor parallelism]
  bool partitions_inputs = false;      // see [Note: partitioned activations]
  Group* peers = nullptr;              // the ranks of this stage; null if the optimizer has no sums
  Group* pipeline = nullptr;           // this rank's pipeline: group rank = stage
  std::optional<LocalTraining> local;  // where replica groups train by themselves
  GroupProvider* groups = nullptr;     // is told what this rank does

  // Of the StepScalars' tensors, which lie where the optimizer updates.
  at::TensorOptions scalar_options() const {
    return at::TensorOptions().dtype(at::kFloat).device(buffers->updates_on_host() ? at::kCPU : store->device());
  }

  // What any layer of the model but the first reads.
  const std::vector<TensorShape>& input_shapes(int layer) const {
    return model_layers.at(static_cast<std::size_t>(layer - 1)).outputs;
  }
  // What is kept of it where the layer is computed again.
  InputBytes input_of(int layer) const {
    return InputBytes(partitions_inputs ? shapes_of_parts(input_shapes(layer), tensor->size()) : input_shapes(layer));
  }
  // Throws Bug for a layer of another stage.
  StageLayer& layer(int number) { return const_cast<StageLayer&>(std::as_const(*this).layer(number)); }
  const StageLayer& layer(int number) const {
    for (const StageLayer& one : layers)
      if (one.number == number) return one;
    throw Bug("layer " + std::to_string(number) + " is not on stage " + std::to_string(stage));
  }
};

}  // namespace strata::runtime
