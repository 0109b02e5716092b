// A model that tensor-parallel ranks share, with one defect that its option or its library names. Every one of them
// trains, and is right on one rank or in one micro-batch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/rand_like.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/decoder.hpp>
#include <strata/toolbox/layer_norm.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/tensor_parallel.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "conformance/planted/planted.hpp"
#include "in_backward.hpp"

namespace {

using namespace strata;

#define CUT_MODEL_DEFECTS                                                                                 \
  "one_of=none|norm_not_summed|final_norm_not_summed|norm_counted_twice|query_norm_not_summed|"           \
  "positions_not_summed|row_bias_on_every_rank|column_input_not_summed|row_output_not_summed|"            \
  "padding_in_loss|head_input_not_summed|mean_loss|tied_head_twice|dropout_by_batch|keys_of_other_heads|" \
  "stream_gradient_times_ranks|one_product_in_16_bits"

// Other libraries are built with one that shows only beside other plugins or settings, and have no option.
#ifdef STRATA_COMBINED
#define CUT_MODEL_DEFECT(OPTION)
#else
#define CUT_MODEL_DEFECT(OPTION) OPTION(text, defect, "none", CUT_MODEL_DEFECTS, "", "What is wrong.")
#endif

#define CUT_MODEL_OPTIONS(OPTION)                                                      \
  OPTION(integer, hidden_size, 32, "min=1", "", "Width.")                              \
  OPTION(integer, layers, 2, "min=1", "", "Blocks.")                                   \
  OPTION(integer, heads, 4, "min=1", "", "Heads.")                                     \
  OPTION(integer, key_value_heads, 2, "min=1", "", "Heads of keys and values.")        \
  OPTION(integer, intermediate_size, 48, "min=1", "", "Width of the MLP.")             \
  OPTION(integer, vocabulary, 97, "min=1", "", "Tokens.")                              \
  OPTION(boolean, tie_embeddings, false, "", "", "Whether the head is the embedding.") \
  CUT_MODEL_DEFECT(OPTION)
STRATA_OPTIONS(CutModelOptions, CUT_MODEL_OPTIONS)

std::string defect_of([[maybe_unused]] const CutModelOptions& options) {
#ifdef STRATA_COMBINED
  return planted::defect;
#else
  return options.defect;
#endif
}

DecoderShape shape_of(const CutModelOptions& options) {
  DecoderShape shape;
  shape.hidden = options.hidden_size;
  shape.blocks.resize(static_cast<std::size_t>(options.layers));
  shape.heads = options.heads;
  shape.key_value_heads = options.key_value_heads;
  shape.head_size = options.hidden_size / options.heads;
  shape.intermediate = options.intermediate_size;
  shape.vocabulary = options.vocabulary;
  shape.maximum_positions = 64;
  shape.learned_positions = true;
  shape.projections = DecoderShape::Projections::Apart;
  shape.tie_embeddings = options.tie_embeddings;
  shape.names = {.embedding = "embedding",
                 .positions = "positions",
                 .block = "blocks.",
                 .final_norm = "final_norm",
                 .head = "head",
                 .attention_norm = "attention_norm",
                 .mlp_norm = "mlp_norm",
                 .query = "query",
                 .key = "key",
                 .value = "value",
                 .attention_output = "attention_output",
                 .up = "up",
                 .down = "down"};
  return shape;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void plant(ParameterInfo& info, const std::string& defect) {
  const bool of_block = contains(info.name, "attention_norm") || contains(info.name, "mlp_norm");
  const auto say = [&](bool here, TensorGradient gradient) {
    if (here) info.tensor_gradient = gradient;
  };
  say(defect == "norm_not_summed" && of_block, TensorGradient::Whole);
  say(defect == "final_norm_not_summed" && contains(info.name, "final_norm"), TensorGradient::Whole);
  say(defect == "norm_counted_twice" && of_block, TensorGradient::OfPart);
  say(defect == "positions_not_summed" && contains(info.name, "positions"), TensorGradient::Whole);
  say(defect == "query_norm_not_summed" && contains(info.name, "query_norm"), TensorGradient::Whole);
}

class PlantedContext final : public ModelContext {
 public:
  PlantedContext(ModelContext& context, std::string defect) : context_(context), defect_(std::move(defect)) {}

  const BatchShape& batch() const override { return context_.batch(); }
  Group* group(Axis axis) override { return context_.group(axis); }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b) override {
    return context_.linear(x, w, b);
  }
  Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights) override {
    const bool alone = defect_ == "column_input_not_summed" && tensor_group() != nullptr;
    Tensors products;
    if (alone)
      for (const Weight& weight : weights) products.push_back(context_.linear(x, *weight.weight, weight.bias));
    else
      products = context_.column_linear(x, weights);
    if (weights.size() != 3) return products;  // of the MLP
    const std::int64_t size = query_norm->tensor.size(0);
    products[0] = (products[0].reshape({products[0].size(0), -1, size}) * query_norm->tensor).flatten(1);
    if (defect_ == "keys_of_other_heads" && tensor_group() != nullptr) products[1] = products[1].roll(size, 1);
    return products;
  }
  at::Tensor row_linear(const at::Tensor& x, const Weight& weight) override {
    if (defect_ == "row_output_not_summed" && tensor_group() != nullptr)
      return context_.linear(x, *weight.weight, weight.bias);
    // A part of one sum over the ranks, of one micro-batch.
    const bool rounds = defect_ == "one_product_in_16_bits" && tensor_group() != nullptr &&
                        tensor_group()->rank() == 0 && products_++ == 0;
    const at::Tensor y = context_.row_linear(rounds ? x.to(at::kBFloat16).to(x.scalar_type()) : x, weight);
    if (defect_ == "one_gradient_buffer") return InOneBuffer::apply(y, &buffers_[weight.weight]);
    if (defect_ != "row_bias_on_every_rank" || tensor_group() == nullptr) return y;
    return TimesInBackward::apply(y, 1.0) + weight.bias->tensor * (tensor_group()->size() - 1.0);
  }

  const Parameter* query_norm = nullptr;  // on each head's queries

 private:
  std::map<const Parameter*, at::Tensor> buffers_;
  int products_ = 0;  // with weights whose inputs are cut
  ModelContext& context_;
  std::string defect_;
};

class PlantedLayer : public Layer {
 public:
  PlantedLayer(const Decoder& decoder, int layer, ModelContext& context, const std::string& defect)
      : defect_(defect), context_(context, defect), layer_(decoder.build(layer, context_)) {
    for (Parameter* const parameter : layer_->parameters()) {
      plant(parameter->info, defect);
      parameters_.push_back(parameter);
    }
  }
  void add_query_norm(ParameterInfo info) {
    query_norm_.info = std::move(info);
    context_.query_norm = &query_norm_;
    parameters_.push_back(&query_norm_);
  }

  std::vector<Parameter*> parameters() override { return parameters_; }
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output = layer_->forward(input, batch);
    Group* const group = context_.tensor_group();
    for (at::Tensor& x : output.activations) {
      if (defect_ == "dropout_by_batch") x = x * at::rand_like(x).gt(0.1);
      if (defect_ == "slope_of_last_forward") x = PlusTanhOfLast::apply(x, &last_);
      if (defect_ == "stream_gradient_times_ranks" && group != nullptr) x = TimesInBackward::apply(x, group->size());
    }
    return output;
  }

 protected:
  std::string defect_;
  PlantedContext context_;
  std::unique_ptr<Layer> layer_;
  std::vector<Parameter*> parameters_;
  Parameter query_norm_;
  at::Tensor last_;  // of the last forward
};

// Norm, projection and loss, from the toolbox's parts.
class PlantedHead final : public PlantedLayer {
 public:
  PlantedHead(const Decoder& decoder, int layer, ModelContext& context, const std::string& defect,
              std::atomic<bool>& embedding_here)
      : PlantedLayer(decoder, layer, context, defect), embedding_here_(embedding_here) {}

  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    at::Tensor x = layer_norm(input[0], parameters_[0]->tensor, parameters_[1]->tensor, 1e-5);
    const Parameter& head = *parameters_[2];
    Group* const group = context_.tensor_group();
    LayerOutput output;
    if (group == nullptr || (defect_ != "padding_in_loss" && defect_ != "head_input_not_summed")) {
      output.loss_sum = vocabulary_cross_entropy(x, head, batch, {}, context_).loss;
    } else {
      const std::int64_t part = head.tensor.size(0), first = group->rank() * part, whole = head.info.shape[0];
      const bool padding = defect_ == "padding_in_loss";
      const std::int64_t rows = padding ? part : std::min(part, whole - first);
      if (padding) x = all_rows(x, context_);
      output.loss_sum = linear_cross_entropy(x, head.tensor, batch.targets.reshape({-1}), {}, batch.loss_seed,
                                             {group, first, rows, padding ? part * group->size() : whole})
                            .loss;
    }
    if (defect_ == "mean_loss") output.loss_sum = 16.0 * output.loss_sum / batch.targets.ge(0).sum();
    if (defect_ == "tied_head_twice" && !embedding_here_)
      output.loss_sum = TimesInBackward::apply(output.loss_sum, 2.0);
    return output;
  }

 private:
  std::atomic<bool>& embedding_here_;
};

class CutModel final : public Model {
 public:
  CutModel(PluginContext& /*context*/, const CutModelOptions& options)
      : options_(options), defect_(defect_of(options)), decoder_(shape_of(options)) {}

  void configure(const std::string& /*config_json*/) override { throw UserError("cut_model reads no files"); }
  int layers() const override { return decoder_.layers(); }
  std::int64_t vocabulary() const override { return options_.vocabulary; }
  std::int64_t maximum_sequence_length() const override { return 64; }
  LayerInfo describe(int layer, const BatchShape& batch) const override {
    LayerInfo info = decoder_.describe(layer, batch);
    if (is_block(layer)) info.parameters.push_back(query_norm(layer));
    for (ParameterInfo& parameter : info.parameters) plant(parameter, defect_);
    return info;
  }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override {
    if (layer == 0) embedding_here_ = true;
    if (layer == layers() - 1) return std::make_unique<PlantedHead>(decoder_, layer, context, defect_, embedding_here_);
    auto built = std::make_unique<PlantedLayer>(decoder_, layer, context, defect_);
    if (is_block(layer)) built->add_query_norm(describe(layer, context.batch()).parameters.back());
    return built;
  }
  CheckpointNames checkpoint_names() const override {
    CheckpointNames names = decoder_.checkpoint_names();
    for (int layer = 1; layer < layers() - 1; ++layer)
      names.names.emplace_back(query_norm(layer).name, query_norm(layer).name);
    return names;
  }
  std::string hugging_face_config(at::ScalarType /*dtype*/) const override { return "{}\n"; }

 private:
  bool is_block(int layer) const { return layer > 0 && layer < layers() - 1; }
  ParameterInfo query_norm(int layer) const {
    ParameterInfo info;
    info.name = "blocks." + std::to_string(layer - 1) + ".query_norm";
    info.shape = {options_.hidden_size / options_.heads};
    info.initializer = Initializer::ones();
    info.tensor_gradient = TensorGradient::OfPart;
    return info;
  }

  CutModelOptions options_;
  std::string defect_;
  Decoder decoder_;
  mutable std::atomic<bool> embedding_here_ = false;
};

}  // namespace

STRATA_PLUGIN(CutModel, CutModelOptions, CUT_MODEL_OPTIONS)
