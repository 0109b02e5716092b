// A model as the engine runs it: layer by layer, inputs detached, gradients added into buffers that were there before.
#pragma once
#include <strata/fakes/model_context.hpp>
#include <strata/model.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// Where libtorch's random numbers on the host go on from.
void set_seed(std::uint64_t seed);

// The options with which the model has the fewest parameters, of its defaults, its presets and usual small sizes.
// Throws Skip where none of them makes a model that a case can run.
fakes::OptionTexts small_options(Subject& subject);
fakes::LoadedPlugin<Model> make_small(Subject& subject);
std::int64_t count_parameters(const Model& model);
// Options for models of other sizes: the presets, the small ones, and those with each of the subject's settings. Some
// are refused.
std::vector<fakes::OptionTexts> size_settings(Subject& subject);
// A statistic of several layers, micro-batches or samples.
struct Combined {
  StatisticKind kind = StatisticKind::Sum;
  double value = 0.0;

  static Combined nothing(StatisticKind kind);
  void add(double more);
};
using CombinedStatistics = std::map<std::string, Combined>;  // by name

class BuiltModel {
 public:
  // Builds every layer, or `only` one. Parameters have values that depend on `seed`, their names and shapes alone.
  BuiltModel(const Model& model, const BatchShape& batch, at::ScalarType dtype, std::uint64_t seed,
             at::Device device = at::kCPU, int only = -1);
  // A tensor-parallel rank's part of the same parameters, in fp32.
  BuiltModel(const Model& model, std::unique_ptr<ModelContext> context, int rank, std::uint64_t seed);

  int layers() const { return static_cast<int>(layers_.size()); }
  // Random numbers start as the engine starts them for this layer and micro-batch.
  LayerOutput forward(int layer, const Tensors& input, const MicroBatch& batch) const;
  // What each layer gets and the last one gives, without gradients.
  struct Passage {
    std::vector<Tensors> inputs;  // by layer
    LayerOutput last;
    std::optional<double> auxiliary_loss;  // the sum of those that layers give
    CombinedStatistics statistics;         // of all layers
  };
  Passage pass(const MicroBatch& batch) const;
  double loss(const MicroBatch& batch) const;
  // What training minimizes: the loss and the auxiliary losses.
  double objective(const MicroBatch& batch) const;
  // Adds the gradient of seed x objective to gradients(); every layer by itself. Where a layer's backward is said to
  // read no weights, these are NaN while it runs.
  void backward(const MicroBatch& batch, double seed) const;

  // By name; tied parameters are one.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  void clear_gradients() const;
  // Whether linear() gives gradients to weights and biases; if not, it is as in a backward that is split.
  void give_weight_gradients(bool give) const { plain_->gives_weight_gradients = give; }
  // By the same names.
  const std::map<std::string, ParameterInfo>& infos() const { return infos_; }
  // Names of parameters that say linear_only.
  std::vector<std::string> linear_only() const;

 private:
  void build(const Model& model, at::ScalarType dtype, std::uint64_t seed, at::Device device, int only);
  void place(Parameter& parameter, at::ScalarType dtype, std::uint64_t seed, at::Device device);

  std::unique_ptr<ModelContext> context_;
  fakes::FakeModelContext* plain_ = nullptr;
  int rank_ = 0;
  std::vector<std::unique_ptr<Layer>> layers_;  // null where only another one was built
  std::vector<bool> backward_reads_weights_;    // by layer, as described
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, ParameterInfo> infos_;
};

// The rank's part of a tensor like the whole parameter.
at::Tensor part_of(const at::Tensor& whole, const ParameterInfo& info, int ranks, int rank);

// Tokens of the model's vocabulary; each target is the next token.
MicroBatch draw_batch(const Model& model, std::int64_t samples, std::int64_t length, std::uint64_t seed,
                      at::Device device = at::kCPU);

// The same tokens with other targets; one of its samples.
MicroBatch with_targets(const MicroBatch& batch, const at::Tensor& targets);
MicroBatch alone(const MicroBatch& batch, std::int64_t sample);

// "[2, 3] Float".
std::string text_of(const at::Tensor& tensor);

}  // namespace strata::conformance
