// A model is an ordered list of layers, run one at a time. A layer is the unit of gathering, reducing, checkpointing,
// offload and pipeline cuts; autograd never crosses its boundary.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/mesh.hpp>
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
  int tensor_ranks = 1;            // ranks that share each layer; see [Note: tensor parallelism]
  bool sequence_parallel = false;  // true: ranks also shard the rows of the residual stream

  std::int64_t rows() const { return micro_batch * sequence_length; }
  // Returns the number of rows of the residual stream that a rank holds.
  std::int64_t stream_rows() const { return sequence_parallel ? (rows() + tensor_ranks - 1) / tensor_ranks : rows(); }
};

// The current micro-batch; every layer may read it.
struct MicroBatch {
  at::Tensor tokens;        // int64 [micro_batch, sequence_length]
  at::Tensor targets;       // same shape: the target of token t is token t + 1; -100 is ignored
  std::int64_t sample = 0;  // global index of its first sample: random draws depend on it, not on the rank
  bool training = true;     // false in evaluation: no dropout
  // Key of this layer's random draws in this step, int64, 0-dimensional, on the device: equal for all micro-batches and
  // on all ranks. Draws from the key and an element's place in the global batch are independent of the layout.
  at::Tensor random_key;
  // Seed of backward: the gradient of loss_sum and of auxiliary_loss, loss scale / tokens of the global batch. fp32,
  // 0-dimensional, on the device, so that a step reads nothing from the host. Undefined outside a training step; use 1
  // then. A layer that computes gradients in forward multiplies by it before rounding them to fp16.
  at::Tensor loss_seed;
  // Rows of the micro-batch (sample x sequence_length + token) for which next-token logits are requested in place of
  // the loss: int64 [n], on the device. Undefined if the loss is requested.
  at::Tensor asked_rows;
};

// How a statistic is combined over layers, micro-batches and ranks.
enum class StatisticKind { Sum, Maximum };

// A number that a layer reports beside the loss, such as its largest logit or the load of an expert.
struct StatisticInfo {
  std::string name;  // letters a-z, digits and _; values of layers with equal name and kind are combined into one
  StatisticKind kind = StatisticKind::Sum;
  bool operator==(const StatisticInfo&) const = default;
};

struct Statistic {
  StatisticInfo info;
  // Value of the micro-batch, floating-point and 0-dimensional, on the device: a sum, or a maximum, over the samples
  // that have a target; without any, 0 or -infinity. Equal on the ranks of the tensor group. Its gradient is not used.
  // Maxima must work on meta tensors too: at::amax() does, at::max() does not.
  at::Tensor value;
};

struct LayerOutput {
  Tensors activations;  // next layer's input; integer tensors pass through without gradients
  at::Tensor loss_sum;  // last layer only: the SUM over valid tokens, fp32 0-dimensional; never a mean
  // Auxiliary term of any layer that is minimized with the loss, such as the balance loss of a router; optional.
  // Already multiplied by its weight. fp32, 0-dimensional and a SUM like loss_sum: the value of two samples is the sum
  // of their values, and a sample whose targets are all ignored adds 0. Backward starts with the same loss_seed.
  // Reported as auxiliary_loss, in validation too; the reported loss does not contain it.
  at::Tensor auxiliary_loss;
  // Next-token logits of the last layer, in place of loss_sum if MicroBatch::asked_rows is defined: [n, vocabulary],
  // fp32, equal on the ranks of the tensor group; a row's softmax is the token's distribution. No gradients.
  at::Tensor logits;
  // Statistics of LayerInfo::statistics, in that order; not read if MicroBatch::asked_rows is defined. Metrics of a
  // step include its statistics, and metrics of a validation those of the validation.
  std::vector<Statistic> statistics;
};

struct TensorShape {
  std::vector<std::int64_t> extents;
  at::ScalarType dtype = at::kFloat;
};

// The sizes and costs of a layer, known before anything is allocated.
struct LayerInfo {
  std::string name;  // "embedding", "block 3", "head"
  std::vector<ParameterInfo> parameters;
  std::vector<TensorShape> outputs;   // activations of one micro-batch; empty for the layer with the loss
  double forward_flops = 0.0;         // for one micro-batch; a multiply-add counts as two
  std::int64_t activation_bytes = 0;  // estimated bytes that autograd keeps from forward to backward
  // False if backward reads no parameter values (embeddings). The engine then does not gather them for backward unless
  // the layer is recomputed: the contents of Parameter::tensor are unspecified, its shape and .grad stay valid.
  bool backward_reads_weights = true;
  // Statistics that every forward returns. Maxima cost the step a second, small all-reduce.
  std::vector<StatisticInfo> statistics;
};

// A model's tensor names in Hugging Face files.
struct CheckpointNames {
  // If a parameter has several external names, an export uses the first, and an import the one found in the file.
  std::vector<std::pair<std::string, std::string>>
      names;                         // canonical and external name; equal shapes and layouts except `transposed`
  std::vector<std::string> ignored;  // patterns (with *) of tensors that the model ignores in files
  // External names (with *) of matrices stored transposed in files: [in, out] for a parameter [out, in].
  std::vector<std::string> transposed;
};

class Group;

// Weight [out, in] of a product of ModelContext, and its bias [out] or null.
struct Weight {
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
};

// The engine's interface for layers.
//
// [Note: tensor parallelism] The tensor_ranks ranks of a tensor group run the same layers on the same tokens and share
// their work. The model describes whole parameters and gives those that are cut a Split; Parameter::tensor is this
// rank's part. Work on single heads or channels lies between a pair of linears: column_linear(), whose weights are cut
// by rows, and row_linear(), whose weight is cut by columns. Between such pairs lies the residual stream, a tensor
// [stream_rows(), hidden] whose rows are tokens. A rank has all rows, equal on all ranks, or with sequence parallelism
// (Korthikanti et al., arXiv 2205.05198) its shard of them; the last shards are padded with rows of zeros to equal
// length. The plugin must keep two rules. Layers compute equal results from inputs that are equal on all ranks. A
// parameter that is used on the stream or on single heads declares this in its TensorGradient. With one rank
// column_linear() and row_linear() are linear(). (Shoeybi et al., arXiv 1909.08053)
class STRATA_EXPORT ModelContext {
 public:
  virtual ~ModelContext();
  virtual const BatchShape& batch() const = 0;
  // Returns the group of the ranks that compute this layer together and differ along `axis`, for collectives of the
  // layer itself; null if the axis has one rank, or if its ranks do not share layers (AxisInfo::shares_layers). All
  // ranks of the group must call the same collectives in forward and in backward.
  virtual Group* group(Axis axis);
  Group* tensor_group() { return group(Axis::Tensor); }
  // Returns x [..., in] times w [out, in] transposed, plus b [out] if given, computed by the precision policy. Use it
  // for every matmul with a weight. Differentiable. The gradients of w and b are added to their gradient buffers; a
  // schedule that splits the backward does so later, in BackwardWeight.
  virtual at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b = nullptr) = 0;
  // Returns the products of the stream x [stream_rows(), in] with weights whose rows (and biases) are cut: each is
  // [rows(), this rank's part of out]. Saves x as it is for backward: with sequence parallelism its rows are gathered
  // again there. [collective] over the tensor group
  virtual Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights);
  // Returns the product of x [rows(), this rank's part of in] with a weight whose columns are cut, summed over the
  // ranks: [stream_rows(), out]. The bias is whole and is added once. [collective] over the tensor group
  virtual at::Tensor row_linear(const at::Tensor& x, const Weight& weight);
};

class STRATA_EXPORT Layer {
 public:
  virtual ~Layer();
  // Returns the parameters, always in one order; the engine sets their tensors. They live as long as the layer.
  virtual std::vector<Parameter*> parameters() = 0;
  // Runs the layer. input: the previous layer's activations; empty for the first layer, which reads batch.tokens.
  // Builds an autograd graph if gradients are enabled. Must not write to its inputs. Must return equal results for
  // equal inputs, because activation checkpointing calls it again.
  virtual LayerOutput forward(const Tensors& input, const MicroBatch& batch) = 0;
};

class STRATA_EXPORT Model : public Plugin {
 public:
  ~Model() override;
  // Takes sizes from the text of a Hugging Face config.json. Called before the functions below if the run starts from a
  // Hugging Face folder. Throws UserError naming the key if this model cannot represent what the file describes.
  virtual void configure(const std::string& config_json) = 0;
  // Returns the number of layers, those for the embedding and the loss included.
  virtual int layers() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  // Returns the longest sequence that the model accepts.
  virtual std::int64_t maximum_sequence_length() const = 0;
  // Returns sizes and costs of a layer. Allocates nothing. [any rank]
  virtual LayerInfo describe(int layer, const BatchShape& batch) const = 0;
  virtual std::unique_ptr<Layer> build(int layer, ModelContext& context) const = 0;
  virtual CheckpointNames checkpoint_names() const = 0;
  // Returns the config.json text for an export to Hugging Face libraries; `dtype` is the dtype of the exported weights.
  virtual std::string hugging_face_config(at::ScalarType dtype) const = 0;
};

}  // namespace strata
