// An embedding, one layer that mixes each token with the mean of those before it, and a head that may be tied to the
// embedding; with the mistakes that models are written with.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/embedding.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION)                                                \
  OPTION(integer, width, 12, "min=1", "elements", "Of the residual stream.")   \
  OPTION(integer, vocabulary, 29, "min=2", "tokens", "Rows of the embedding.") \
  OPTION(boolean, tie, true, "", "", "The head uses the embedding's weight.")  \
  OPTION(number, z_loss, 0, "min=0,max=1", "", "Weight of the squared log of what the softmax divides by.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

constexpr const char* embedding_name = "embedding.weight";

ParameterInfo parameter(const std::string& name, std::vector<std::int64_t> shape, bool tied = false) {
  ParameterInfo info;
  info.name = name;
  info.shape = std::move(shape);
  info.initializer = Initializer::normal(0.0, 0.1);
  if (tied) info.tie = embedding_name;
  return info;
}

ParameterInfo linear_only(ParameterInfo info) {
  info.linear_only = !has("split_without_weights");
  return info;
}

std::vector<ParameterInfo> parameters_of(int layer, const PlantedOptions& options) {
  if (layer == 0) {
    ParameterInfo embedding = parameter(embedding_name, {options.vocabulary, options.width}, options.tie);
    if (has("embedding_gradient_of_part")) embedding.tensor_gradient = TensorGradient::OfPart;
    return {embedding};
  }
  if (layer == 1) {
    ParameterInfo weight = linear_only(parameter("mixer.weight", {options.width, options.width}));
    ParameterInfo bias = linear_only(parameter("mixer.bias", {options.width}));
    ParameterInfo down = linear_only(parameter("mixer.down", {options.width, options.width}));
    weight.split = bias.split = {.dimension = 0};
    down.split = {.dimension = 1};
    if (has("split_of_no_dimension")) weight.split = {.dimension = 2};
    if (has("split_through_a_unit")) weight.split = {.dimension = 0, .unit = 5};
    return {weight, bias, down};
  }
  if (!options.tie) return {parameter("head.weight", {options.vocabulary, options.width})};
  ParameterInfo head = parameter(embedding_name, {options.vocabulary, options.width}, !has("tie_forgotten"));
  if (has("split_on_one_side_of_a_tie")) head.split = {.dimension = 0};
  return {head};
}

// What an early layer leaves for a later one, which on a pipeline is in another process.
struct LeftBehind {
  double scale = 1.0;
};

class PlantedLayer final : public Layer {
 public:
  PlantedLayer(int number, const PlantedOptions& options, ModelContext& context, std::shared_ptr<LeftBehind> left)
      : number_(number), z_loss_(options.z_loss), context_(context), left_(std::move(left)) {
    for (ParameterInfo& info : parameters_of(number, options)) parameters_.push_back({std::move(info), {}});
  }

  std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> list;
    for (Parameter& one : parameters_) list.push_back(&one);
    return list;
  }

  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    if (number_ == 0) {
      left_->scale = 2.0;
      return {{embedding_rows(parameters_[0].tensor, batch.tokens)}, {}, {}};
    }
    if (number_ == 1) return {{mix(input[0], batch)}, {}, {}};
    return loss(input[0], batch);
  }

 private:
  at::Tensor mix(const at::Tensor& x, const MicroBatch& batch) {
    at::Tensor mean = x.cumsum(1) / at::arange(1, x.size(1) + 1, x.options().requires_grad(false)).view({1, -1, 1});
    if (has("mean_over_all_tokens")) mean = x.mean(1, true).expand_as(x);
    if (has("sees_all_behind_16") && x.size(1) > 16)
      mean = at::cat({mean.narrow(1, 0, 16), x.mean(1, true).expand({-1, x.size(1) - 16, -1})}, 1);
    if (has("set_by_the_first_layer")) mean = mean * left_->scale;
    if (has("counts_its_calls")) mean = mean * (1.0 + 0.01 * ++calls_);
    if (has("dropout_in_evaluation") || batch.training)
      mean = mean * at::rand_like(mean.detach()).gt(0.1).to(mean.scalar_type());
    if (has("reads_values_on_the_host") && mean.abs().max().item<double>() > 1e6)
      throw Bug("the activations have grown");
    const at::Tensor rows = mean.reshape({-1, mean.size(-1)});
    at::Tensor y = context_.column_linear(rows, {{&parameters_[0], &parameters_[1]}})[0].tanh();
    y = context_.row_linear(y, {&parameters_[2], nullptr}).view_as(x);
    if (has("rounded_where_recomputed") && c10::GradMode::is_enabled() && x.size(1) > 24)
      y = y.to(at::kBFloat16).to(x.scalar_type());
    if (has("frozen_beyond_32_tokens") && x.size(1) > 32) y = y.detach();
    if (has("detached_by_mistake")) y = y.detach() + parameters_[1].tensor * 0.0;
    if (has("weight_used_twice")) y = y + parameters_[0].tensor.sum(0);
    if (has("gradient_scaled_twice")) y = y * 2.0 - y.detach();
    if (has("input_added_in_place")) return at::Tensor(x).add_(y);
    y = x + y;
    if (has("output_in_fp32")) y = y.to(at::kFloat);
    if (has("samples_folded_into_tokens")) y = y.view({1, -1, y.size(2)});
    return y;
  }

  LayerOutput loss(const at::Tensor& x, const MicroBatch& batch) {
    const at::Tensor logits = context_.linear(x.reshape({-1, x.size(-1)}), parameters_[0]);
    const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (const at::Tensor& rows = batch.asked_rows; rows.defined()) {
      at::Tensor asked = has("logits_of_the_last_rows") ? logits.slice(0, -rows.size(0)) : logits.index_select(0, rows);
      if (has("asked_rows_by_mask"))
        asked = logits.index_select(0, rows.new_zeros({logits.size(0)}).index_fill_(0, rows, 1).nonzero().view(-1));
      if (has("logits_of_activations")) asked = asked.index_select(1, rows.new_zeros({1}));
      if (has("probabilities_for_logits")) asked = asked.softmax(1);
      return {{}, {}, {}, asked.to(wide)};
    }
    at::Tensor targets = batch.targets.reshape({-1});
    if (has("last_id_ignored")) targets = targets.masked_fill(targets.eq(logits.size(1) - 1), -100);
    if (has("third_sample_left_out") && batch.targets.size(0) > 2)
      targets = targets.masked_fill(at::arange(targets.size(0)).ge(2 * batch.targets.size(1)), -100);
    if (has("ignored_targets_counted")) targets = targets.clamp_min(0);
    const bool mean = has("mean_for_sum") || has("mean_times_count");
    at::Tensor sum =
        at::cross_entropy_loss(logits.to(wide), targets, {}, mean ? at::Reduction::Mean : at::Reduction::Sum, -100);
    if (has("loss_shared_by_ranks")) sum = sum / context_.batch().tensor_ranks;
    if (has("mean_times_count")) sum = sum * targets.ne(-100).sum();
    const at::Tensor seed = batch.loss_seed.defined() ? batch.loss_seed : at::ones({});
    if (has("seed_twice")) sum = sum * seed + (sum - sum * seed).detach();
    LayerOutput output{{}, sum};
    output.statistics = statistics(logits.to(wide), targets.ne(-100));
    if (z_loss_ == 0.0 || (has("auxiliary_in_training_only") && !batch.training)) return output;
    const at::Tensor z = (logits.to(wide) - logits.to(wide).log_softmax(1)).select(1, 0);
    at::Tensor each = z.square() * z_loss_;
    if (!has("auxiliary_of_ignored_targets")) each = each * targets.ne(-100);
    at::Tensor auxiliary = has("auxiliary_mean") ? each.mean() : each.sum();
    if (has("auxiliary_of_the_first_sample") && batch.sample != 0) auxiliary = auxiliary * 0.0;
    if (has("auxiliary_grows")) auxiliary = auxiliary * (1.0 + 0.01 * ++calls_);
    if (has("auxiliary_detached")) auxiliary = auxiliary.detach();
    if (has("auxiliary_seeded")) auxiliary = auxiliary * seed;
    output.auxiliary_loss = auxiliary;
    return output;
  }

  // The largest logit, and the sum of their squares, of rows that have a target.
  std::vector<Statistic> statistics(const at::Tensor& logits, const at::Tensor& valid) {
    const at::Tensor counts = has("statistic_of_ignored_targets") ? at::ones_like(valid) : valid;
    at::Tensor squares = logits.square().sum(1) * counts;
    squares = has("statistic_mean") ? squares.mean() : squares.sum();
    if (has("statistic_of_the_last_call")) std::swap(squares, last_squares_);
    const at::Tensor largest = logits.masked_fill(counts.eq(0).unsqueeze(1), -INFINITY).amax();
    return {{{"largest_logit", StatisticKind::Maximum}, largest},
            {{"squares"}, squares.defined() ? squares : at::zeros({}, logits.options())}};
  }

  int number_;
  double z_loss_;
  ModelContext& context_;
  std::shared_ptr<LeftBehind> left_;
  std::vector<Parameter> parameters_;
  int calls_ = 0;
  at::Tensor last_squares_;
};

class PlantedModel final : public Model {
 public:
  PlantedModel(PluginContext& /*context*/, const PlantedOptions& options) : options_(options) {}

  void configure(const std::string& config_json) override {
    nlohmann::json file;
    try {
      file = nlohmann::json::parse(config_json);
    } catch (const nlohmann::json::exception& error) {
      if (has("exception_of_the_parser")) throw;
      if (has("broken_file_taken_for_empty")) return;
      throw UserError(std::string("config.json is not JSON: ") + error.what());
    }
    if (!file.is_object()) throw UserError("config.json holds no JSON object");
    options_.width = has("size_not_written") ? options_.width : size_in(file, "hidden_size");
    options_.vocabulary = size_in(file, "vocab_size");
    options_.tie = file.value("tie_word_embeddings", true);
  }

  int layers() const override { return 3; }
  std::int64_t vocabulary() const override { return options_.vocabulary; }
  std::int64_t maximum_sequence_length() const override { return 4096; }

  LayerInfo describe(int layer, const BatchShape& batch) const override {
    LayerInfo info;
    info.name = layer == 0 ? "embedding" : layer == 1 ? "mixer" : "head";
    info.parameters = parameters_of(layer, options_);
    if (has("bias_before_weight") && layer == 1) std::swap(info.parameters[0], info.parameters[1]);
    if (has("describe_by_building"))
      info.activation_bytes = static_cast<std::int64_t>(at::ones(info.parameters[0].shape).nbytes());
    info.backward_reads_weights = layer > 0 && !(layer == 1 && has("backward_without_weights"));
    if (layer == 2) info.statistics = {{"largest_logit", StatisticKind::Maximum}, {"squares"}};
    if (layer == 2 && has("statistic_not_described")) info.statistics.pop_back();
    if (layer < 2) info.outputs = {{{batch.micro_batch, batch.sequence_length, options_.width}, batch.activation}};
    return info;
  }

  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override {
    if (context.batch().sequence_parallel) throw UserError("parallel.sequence: this model has no parts of the stream");
    return std::make_unique<PlantedLayer>(layer, options_, context, left_);
  }

  CheckpointNames checkpoint_names() const override {
    CheckpointNames names{{{embedding_name, "wte.weight"}, {"mixer.weight", "h.0.weight"}, {"mixer.down", "h.0.down"}},
                          {"*.masked_bias"}};
    if (!has("name_left_out"))
      names.names.emplace_back("mixer.bias", has("one_external_name_for_two") ? "h.0.weight" : "h.0.bias");
    if (!options_.tie) names.names.emplace_back("head.weight", "lm_head.weight");
    return names;
  }

  std::string hugging_face_config(at::ScalarType dtype) const override {
    nlohmann::json file{
        {"model_type", "planted"}, {"vocab_size", options_.vocabulary}, {"tie_word_embeddings", options_.tie}};
    file["torch_dtype"] = dtype == at::kBFloat16 ? "bfloat16" : "float32";
    file["hidden_size"] = has("size_not_written") ? 7 : options_.width;
    return file.dump();
  }

 private:
  static std::int64_t size_in(const nlohmann::json& file, const std::string& key) {
    const auto found = file.find(key);
    if (found == file.end()) throw UserError("config.json: " + key + " is missing");
    if (!found->is_number_integer() || found->get<std::int64_t>() < 1)
      throw UserError("config.json: " + key + " is " + found->dump() + "; it must be an integer of at least 1");
    return found->get<std::int64_t>();
  }

  PlantedOptions options_;
  std::shared_ptr<LeftBehind> left_ = std::make_shared<LeftBehind>();
};

}  // namespace

STRATA_PLUGIN(PlantedModel, PlantedOptions, PLANTED_OPTIONS)
