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
  int tensor_ranks = 1;            // that share each layer; see [Note: tensor parallelism]
  bool sequence_parallel = false;  // they share the rows of the residual stream, too

  std::int64_t rows() const { return micro_batch * sequence_length; }
  // Rows of the residual stream that a rank holds.
  std::int64_t stream_rows() const { return sequence_parallel ? (rows() + tensor_ranks - 1) / tensor_ranks : rows(); }
};

// The current micro-batch, which every layer may read.
struct MicroBatch {
  at::Tensor tokens;        // int64 [micro_batch, sequence_length]
  at::Tensor targets;       // the same shape: the target of token t is token t + 1; -100 is ignored
  std::int64_t sample = 0;  // global index of its first sample: random draws depend on it, not on the rank
  bool training = true;     // false in evaluation: no dropout
  // The key of this layer's random draws in this step, int64, 0-dimensional, on the device: equal for all micro-batches
  // and on all ranks. What is drawn by it and by an element's place in the global batch depends on no layout.
  at::Tensor random_key;
  // What backward starts with: the gradient of loss_sum and of auxiliary_loss, loss scale / tokens of the global batch.
  // fp32, 0-dimensional, on the device, so that a step reads nothing from the host. Undefined outside a training step;
  // take 1 then. A layer that computes gradients in forward multiplies by it before rounding them to fp16.
  at::Tensor loss_seed;
  // Where the model is asked how its tokens go on, in place of the loss: the rows of the micro-batch (sample x
  // sequence_length + token) whose next token is asked for, int64 [n], on the device. Undefined otherwise.
  at::Tensor asked_rows;
};

struct LayerOutput {
  Tensors activations;  // the next layer's input; integer tensors pass through without gradients
  at::Tensor loss_sum;  // the last layer: the SUM over valid tokens, fp32 0-dimensional; never a mean
  // Optional, from any layer: a term that is minimized with the loss, such as the balance loss of a router, already
  // multiplied by its weight. fp32, 0-dimensional and a SUM like loss_sum: the value of two samples is the sum of their
  // values, and a sample whose targets are all ignored adds 0. Backward starts with the same loss_seed. Reported as
  // auxiliary_loss, in validation too; the reported loss does not contain it.
  at::Tensor auxiliary_loss;
  // The last layer, in place of loss_sum where MicroBatch::asked_rows is given: [n, vocabulary], fp32, equal on all
  // ranks of the tensor group; the softmax of a row is how probable each next token is. Without gradients.
  at::Tensor logits;
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
  // False: backward reads no parameter's values, as that of an embedding. Then they are not gathered for it, unless the
  // layer is recomputed, and the memory behind Parameter::tensor may hold anything; its shape and .grad are as always.
  bool backward_reads_weights = true;
};

// A model's names in Hugging Face files.
struct CheckpointNames {
  // Of several external names of a parameter an export takes the first, and an import the one that the file has.
  std::vector<std::pair<std::string, std::string>>
      names;                         // canonical and external name; same shapes and layouts but for `transposed`
  std::vector<std::string> ignored;  // patterns (with *) of tensors in files that the model ignores
  // External names (with *) of matrices that files hold transposed: [in, out] where the parameter is [out, in].
  std::vector<std::string> transposed;
};

class Group;

// A weight [out, in] and its bias [out], or null, as ModelContext multiplies by them.
struct Weight {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
};

// The engine as a layer sees it.
//
// [Note: tensor parallelism] The tensor_ranks ranks of a tensor group run the same layers on the same tokens and share
// their work. The model describes whole parameters and marks those that are cut by a Split; Parameter::tensor is this
// rank's part. A pair of linears around work on single heads or channels is cut in the middle: column_linear() by the
// rows of its weights, row_linear() by the columns of its own. Between such pairs lies the residual stream, a tensor
// [stream_rows(), hidden] whose rows are tokens: all of them, equal on all ranks, or with sequence parallelism
// (Korthikanti et al., arXiv 2205.05198) this rank's part of them, the last of which is filled up with rows of zeros so
// that all are equally long. Two rules are the plugin's own: layers compute the same from what is equal on all
// ranks, and a parameter that is used on the stream or on single heads says so by its TensorGradient. On one rank all
// of it is linear(). (Shoeybi et al., arXiv 1909.08053)
class STRATA_EXPORT ModelContext {
 public:
  virtual ~ModelContext();
  virtual const BatchShape& batch() const = 0;
  // The tensor group; null where each rank has its layers alone. For collectives of the layer's own: all of the group
  // must make the same ones in forward and in backward.
  virtual Group* tensor_group();
  // x [..., in] times w [out, in] transposed, plus b [out] where there is one, computed by the precision policy. Use it
  // for every matmul with a weight. Differentiable. The gradients of w and b are added to their gradient buffers; a
  // schedule that splits the backward does so later, in BackwardWeight.
  virtual at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b = nullptr) = 0;
  // Products of the stream x [stream_rows(), in] with weights whose rows (and biases) are cut: each is [rows(), this
  // rank's part of out]. Keeps x as it is for backward: with sequence parallelism its rows are gathered there once
  // more. [collective] over the tensor group
  virtual Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights);
  // The stream's part of the product of x [rows(), this rank's part of in] with a weight whose columns are cut, summed
  // over the ranks; the bias is whole and is added once. [collective] over the tensor group
  virtual at::Tensor row_linear(const at::Tensor& x, const Weight& weight);
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
