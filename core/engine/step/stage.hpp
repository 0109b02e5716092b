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
#include "step/forward_sums.hpp"
#include "step/input_bytes.hpp"
#include "step/input_parts.hpp"
#include "step/linear.hpp"
#include "step/local_training.hpp"

namespace strata::runtime {

// Number of this process among the processes of the run.
struct RankNumbers {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
};

// A plugin with its name in messages.
template <typename Kind>
struct NamedPlugin {
  Kind* plugin = nullptr;
  std::string name;  // "partitioner/zero3"
  Kind* operator->() const { return plugin; }
  Kind& operator*() const { return *plugin; }
};

// One layer of this rank.
struct StageLayer {
  int number = 0;  // number in the whole model
  LayerInfo info;
  std::unique_ptr<Layer> layer;
  bool recompute = false;
};

class GradientPath;
class OwnExchangeHost;

// Everything that one rank computes with: its layers, their parameters and state, and the strategies that move them.
// Made by the Session, read by the executor.
struct StageState {
  int rank = 0;
  int stage = 0;
  int layers_in_model = 0;
  // Number of updates of every chunk within the step; 0: one, at its end, after the norm of all ranks.
  int updates_within_step = 0;
  // First layer of the model with a parameter that is not frozen: earlier layers need no backward.
  int first_trainable = 0;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<SlotPool> slots;
  std::unique_ptr<state::Buffers> buffers;
  Placement placement;
  std::vector<StageLayer> layers;       // this rank's layers, ascending
  std::vector<LayerInfo> model_layers;  // every layer of the model
  StatisticNames statistics;            // statistics of every layer of the model
  state::Layout layout;
  NamedPlugin<Device> device;
  NamedPlugin<Partitioner> partitioner;
  NamedPlugin<PrecisionPolicy> precision;
  NamedPlugin<Optimizer> optimizer;
  std::string model_name;
  std::unique_ptr<state::OptimizerState> optimizer_state;
  std::unique_ptr<state::ParameterSums> sums;  // null in an evaluation
  // Buffers of recomputed layers' inputs between forward and backward, by layer and Instruction::input_buffer.
  std::map<std::pair<int, int>, Buffer*> input_buffers;
  std::unique_ptr<state::HostCopies> host_copies;  // null if the optimizer updates on the device
  // Scalars of the last Norm, so that a kept gradient is applied with its own step's scalars. Before the first Norm
  // there is nothing to apply. For updates within the step, the scalars at its beginning.
  StepScalars scalars;
  Linear* linear = nullptr;
  OwnExchangeHost* own_exchange = nullptr;  // null in a test without a session
  GradientPath* own_gradients = nullptr;    // null without an optimizer that does its own communication
  Group* world = nullptr;
  std::map<int, Group*> holders;       // peers of this rank on other stages that hold a flat parameter too
  Group* tensor = nullptr;             // ranks that share its layers; null: no tensor parallelism
  bool sequence_parallel = false;      // see [Note: tensor parallelism]
  bool partitions_inputs = false;      // see [Note: partitioned activations]
  Group* peers = nullptr;              // ranks of this stage; null if the optimizer has no sums
  Group* pipeline = nullptr;           // this rank's pipeline: group rank = stage
  std::optional<LocalTraining> local;  // set with local training
  GroupProvider* groups = nullptr;     // records what this rank is doing

  // Returns the options of the StepScalars' tensors, which are on the device of the optimizer's updates.
  at::TensorOptions scalar_options() const {
    return at::TensorOptions().dtype(at::kFloat).device(buffers->updates_on_host() ? at::kCPU : store->device());
  }

  // Returns the shapes of a layer's input, for any layer of the model except the first.
  const std::vector<TensorShape>& input_shapes(int layer) const {
    return model_layers.at(static_cast<std::size_t>(layer - 1)).outputs;
  }
  // Returns the packing of a recomputed layer's saved input.
  InputBytes input_of(int layer) const {
    return InputBytes(partitions_inputs ? shapes_of_parts(input_shapes(layer), tensor->size()) : input_shapes(layer));
  }
  // Throws Bug for a layer of another stage.
  StageLayer& layer(int number) { return const_cast<StageLayer&>(std::as_const(*this).layer(number)); }
  const StageLayer& layer(int number) const {
    for (const StageLayer& one : layers)
      if (one.number == number) return one;
    throw Bug("layer {} is not on stage {}", number, stage);
  }
};

}  // namespace strata::runtime
