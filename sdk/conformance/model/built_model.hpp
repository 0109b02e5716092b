// A model run as by the engine: layer by layer, with detached inputs, and gradients added to existing buffers.
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

// State of libtorch's random numbers on the host.
void set_seed(std::uint64_t seed);

// Returns the options that give the model the fewest parameters, of its defaults, its presets and usual small sizes.
// Throws Skip if none of them gives a model that a case can run.
fakes::OptionTexts small_options(Subject& subject);
fakes::LoadedPlugin<Model> make_small(Subject& subject);
std::int64_t count_parameters(const Model& model);
// Returns options for models of other sizes: the presets, the small ones, and those with each of the subject's
// settings. Some are refused.
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
  // Builds every layer, or only `only`. Parameter values depend only on `seed`, their names and shapes.
  BuiltModel(const Model& model, const BatchShape& batch, at::ScalarType dtype, std::uint64_t seed,
             at::Device device = at::kCPU, int only = -1);
  // Builds a tensor-parallel rank's part of the same parameters, in fp32.
  BuiltModel(const Model& model, std::unique_ptr<ModelContext> context, int rank, std::uint64_t seed);

  int layers() const { return static_cast<int>(layers_.size()); }
  // Starts random numbers as the engine does for this layer and micro-batch.
  LayerOutput forward(int layer, const Tensors& input, const MicroBatch& batch) const;
  // Inputs of each layer and outputs of the last, without gradients.
  struct Passage {
    std::vector<Tensors> inputs;  // by layer
    LayerOutput last;
    std::optional<double> auxiliary_loss;  // sum over the layers that have one
    CombinedStatistics statistics;         // of all layers
  };
  Passage pass(const MicroBatch& batch) const;
  double loss(const MicroBatch& batch) const;
  // Returns the value that training minimizes: the loss and the auxiliary losses.
  double objective(const MicroBatch& batch) const;
  // Adds the gradient of seed x objective to gradients(), each layer separately. The weights of a layer whose backward
  // is declared to read none are NaN in it.
  void backward(const MicroBatch& batch, double seed) const;

  // Returns the parameters by name; tied parameters are one.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  void clear_gradients() const;
  // Sets whether linear() gives gradients to weights and biases; without, as in a split backward.
  void give_weight_gradients(bool give) const { plain_->gives_weight_gradients = give; }
  // Returns the gradients by the same names.
  const std::map<std::string, ParameterInfo>& infos() const { return infos_; }
  // Returns the names of parameters with linear_only.
  std::vector<std::string> linear_only() const;

 private:
  void build(const Model& model, at::ScalarType dtype, std::uint64_t seed, at::Device device, int only);
  void place(Parameter& parameter, at::ScalarType dtype, std::uint64_t seed, at::Device device);

  std::unique_ptr<ModelContext> context_;
  fakes::FakeModelContext* plain_ = nullptr;
  int rank_ = 0;
  std::vector<std::unique_ptr<Layer>> layers_;  // null if only another layer was built
  std::vector<bool> backward_reads_weights_;    // by layer, as declared
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, ParameterInfo> infos_;
};

// Returns the rank's part of a tensor of the whole parameter's shape.
at::Tensor part_of(const at::Tensor& whole, const ParameterInfo& info, int ranks, int rank);

// Returns tokens of the model's vocabulary; each target is the next token.
MicroBatch draw_batch(const Model& model, std::int64_t samples, std::int64_t length, std::uint64_t seed,
                      at::Device device = at::kCPU);

// Returns the same tokens with other targets, or one of the samples.
MicroBatch with_targets(const MicroBatch& batch, const at::Tensor& targets);
MicroBatch alone(const MicroBatch& batch, std::int64_t sample);

// Returns "[2, 3] Float".
std::string text_of(const at::Tensor& tensor);

}  // namespace strata::conformance
