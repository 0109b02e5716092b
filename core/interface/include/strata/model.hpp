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
  std::int64_t sequence_length = 1;  // tokens per sample
  at::ScalarType activation = at::kFloat;
};

// The current micro-batch, which every layer may read.
struct MicroBatch {
  at::Tensor tokens;        // int64 [micro_batch, sequence_length]
  at::Tensor targets;       // the same shape: the target of token t is token t + 1; -100 is ignored
  std::int64_t sample = 0;  // global index of its first sample: random draws depend on it, not on the rank
  bool training = true;     // false in evaluation: no dropout
  // What backward starts with: the gradient of loss_sum and of auxiliary_loss, loss scale / tokens of the global batch.
  // fp32, 0-dimensional, on the device, so that a step reads nothing from the host. Undefined outside a training step;
  // take 1 then. A layer that computes gradients in forward multiplies by it before rounding them to fp16.
  at::Tensor loss_seed;
};

struct LayerOutput {
  Tensors activations;  // the next layer's input; integer tensors pass through without gradients
  at::Tensor loss_sum;  // the last layer: the SUM over valid tokens, fp32 0-dimensional; never a mean
  // Optional, from any layer: a term that is minimized with the loss, such as the balance loss of a router, already
  // multiplied by its weight. fp32, 0-dimensional and a SUM like loss_sum: the value of two samples is the sum of their
  // values, and a sample whose targets are all ignored adds 0. Backward starts with the same loss_seed. Reported as
  // auxiliary_loss, in validation too; the reported loss does not contain it.
  at::Tensor auxiliary_loss;
};

struct TensorShape {
  std::vector<std::int64_t> extents;
  at::ScalarType dtype = at::kFloat;
};

// The sizes and costs of a layer, known before anything is allocated.
struct LayerInfo {
  std::string name;  // "embedding", "block 3", "head"
  std::vector<ParameterInfo> parameters;
  std::vector<TensorShape> outputs;   // activations of one micro-batch; empty for the layer that computes the loss
  double forward_flops = 0.0;         // of one micro-batch; a multiply-add counts as two
  std::int64_t activation_bytes = 0;  // estimate of what autograd keeps from forward to backward
};

// A model's names in Hugging Face files.
struct CheckpointNames {
  std::vector<std::pair<std::string, std::string>> names;  // canonical and external name; same shapes and layouts
  std::vector<std::string> ignored;  // patterns (with *) of tensors in files that the model ignores
};

// The engine as a layer sees it.
class STRATA_EXPORT ModelContext {
 public:
  virtual ~ModelContext();
  virtual const BatchShape& batch() const = 0;
  // x [..., in] times w [out, in] transposed, plus b [out] where there is one, computed by the precision policy. Use it
  // for every matmul with a weight. Differentiable. The gradients of w and b are added to their gradient buffers; a
  // schedule that splits the backward does so later, in BackwardWeight.
  virtual at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b = nullptr) = 0;
};

class STRATA_EXPORT Layer {
 public:
  virtual ~Layer();
  // The layer's parameters, always in the same order; the engine sets their tensors. They live as long as the layer.
  virtual std::vector<Parameter*> parameters() = 0;
  // input: the previous layer's activations; empty for the first layer, which reads batch.tokens. Builds an autograd
  // graph if gradients are enabled. Must not write to its inputs. Must return equal results for equal inputs, because
  // activation checkpointing calls it again.
  virtual LayerOutput forward(const Tensors& input, const MicroBatch& batch) = 0;
};

class STRATA_EXPORT Model : public Plugin {
 public:
  ~Model() override;
  // Takes sizes from the text of a Hugging Face config.json. Called before the functions below if the run starts from a
  // Hugging Face folder. Throws UserError naming the key if this model cannot represent what the file describes.
  virtual void configure(const std::string& config_json) = 0;
  virtual int layers() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  // The longest sequence that the model accepts.
  virtual std::int64_t maximum_sequence_length() const = 0;
  // Allocates nothing. [any rank]
  virtual LayerInfo describe(int layer, const BatchShape& batch) const = 0;
  virtual std::unique_ptr<Layer> build(int layer, ModelContext& context) const = 0;
  virtual CheckpointNames checkpoint_names() const = 0;
  // The text of the config.json for an export to Hugging Face libraries; `dtype` is the dtype of the exported weights.
  virtual std::string hugging_face_config(at::ScalarType dtype) const = 0;
};

}  // namespace strata
