// A model is an ordered list of layers, run one at a time. A layer is the unit of gathering, reducing, checkpointing,
// offload and pipeline cuts; autograd never crosses its boundary.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata {

using Tensors = std::vector<at::Tensor>;

struct BatchShape {
  std::int64_t micro_batch = 1;      // samples
  std::int64_t sequence_length = 1;  // tokens a sample
  at::ScalarType activation = at::kFloat;
};

// What every layer may read of the micro-batch under way.
struct MicroBatch {
  at::Tensor tokens;        // int64 [micro_batch, sequence_length]
  at::Tensor targets;       // the same shape: token t's target is token t + 1; -100 counts for nothing
  std::int64_t sample = 0;  // global number of its first sample: random draws are a function of it, not of the rank
  bool training = true;     // false in an evaluation: dropout and its like do nothing
  // What backward multiplies the gradient of loss_sum by: loss scale / valid tokens of the global batch. A layer that
  // works gradients out in forward multiplies by it before it rounds them to fp16; 1 outside a training step.
  double loss_seed = 1.0;
};

struct LayerOutput {
  Tensors activations;        // the next layer's input; integer tensors pass through without gradients
  at::Tensor loss_sum;        // the last layer: the SUM over valid tokens, fp32 0-dimensional; never a mean
  at::Tensor auxiliary_loss;  // optional, weighted as it is to be added per micro-batch
};

struct TensorShape {
  std::vector<std::int64_t> extents;
  at::ScalarType dtype = at::kFloat;
};

// A layer in numbers, before anything is allocated.
struct LayerInfo {
  std::string name;  // "embedding", "block 3", "head"
  std::vector<ParameterInfo> parameters;
  std::vector<TensorShape> outputs;   // activations of one micro-batch; empty for the layer that gives the loss
  double forward_flops = 0.0;         // of one micro-batch, multiply and add counted as two
  std::int64_t activation_bytes = 0;  // what its graph keeps between forward and backward of one micro-batch, about
};

// A model's names in Hugging Face files.
struct CheckpointNames {
  std::vector<std::pair<std::string, std::string>> names;  // canonical name, external name; same shapes and layouts
  std::vector<std::string> ignored;  // patterns with * that files may carry and the model has no use for
};

// What a layer gets from the engine.
class STRATA_EXPORT ModelContext {
 public:
  virtual ~ModelContext();
  virtual const BatchShape& batch() const = 0;
  // x [..., in] times w [out, in] transposed plus b: runs as the precision policy says. Every matmul with a weight goes
  // through it.
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) = 0;
};

class STRATA_EXPORT Layer {
 public:
  virtual ~Layer();
  // The layer's parameters, in an order that never changes; the engine sets their tensors. They live as long as the
  // layer.
  virtual std::vector<Parameter*> parameters() = 0;
  // input: the previous layer's activations (the first layer's is empty and reads batch.tokens). Builds a graph when
  // gradients are enabled. Must not write to its inputs, and must give equal results when called again with equal
  // inputs (recomputation).
  virtual LayerOutput forward(const Tensors& input, const MicroBatch& batch) = 0;
};

class STRATA_EXPORT Model : public Plugin {
 public:
  ~Model() override;
  // Takes sizes from the text of a Hugging Face config.json; called before everything below when the run starts from
  // such a directory. Throws UserError naming the key when the file describes something this model cannot be.
  virtual void configure(const std::string& config_json) = 0;
  virtual int layers() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  // The longest sequence the model takes.
  virtual std::int64_t maximum_sequence_length() const = 0;
  // Allocates nothing. [any rank]
  virtual LayerInfo describe(int layer, const BatchShape& batch) const = 0;
  virtual std::unique_ptr<Layer> build(int layer, ModelContext& context) const = 0;
  virtual CheckpointNames checkpoint_names() const = 0;
  // The text of the config.json that opens an export in Hugging Face libraries; `dtype` is what the weights are written
  // in.
  virtual std::string hugging_face_config(at::ScalarType dtype) const = 0;
};

}  // namespace strata
