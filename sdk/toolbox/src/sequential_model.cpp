#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <algorithm>
#include <limits>
#include <optional>

namespace strata {

// What every layer says, found by running all of them on meta tensors.
struct SequentialModel::Description {
  BatchShape batch;
  std::vector<LayerInfo> layers;
};

namespace {

at::Tensor meta(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

std::int64_t bytes(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

// Counts what a layer computes through it.
class DescribingContext final : public ModelContext {
 public:
  explicit DescribingContext(const BatchShape& batch) : batch_(batch) {}
  const BatchShape& batch() const override { return batch_; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b) override {
    flops += 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.tensor.size(0));
    kept_bytes += bytes(x);
    return at::linear(x, w.tensor, b != nullptr ? std::optional<at::Tensor>(b->tensor) : std::nullopt);
  }
  double flops = 0.0;
  std::int64_t kept_bytes = 0;

 private:
  BatchShape batch_;
};

// The output of a layer for the next one; nothing for the last.
Tensors passed_on(LayerOutput&& output, const LayerInfo& info, bool last) {
  if (last && !output.loss_sum.defined())
    throw UserError(
        "layer {} is the last layer but returns no loss_sum; return the sum of the loss over the micro-batch's valid "
        "tokens",
        info.name);
  if (!last && output.activations.empty())
    throw UserError("layer {} returns no activations, but another layer follows it", info.name);
  return last ? Tensors{} : std::move(output.activations);
}

}  // namespace

SequentialModel::SequentialModel(std::int64_t vocabulary) : vocabulary_(vocabulary) {
  if (vocabulary < 1) throw UserError("the model's vocabulary is {}; it must be at least 1", vocabulary);
}

SequentialModel::~SequentialModel() = default;

void SequentialModel::add_layer(const std::string& name, MakeLayer make) {
  if (name.empty())
    throw UserError("a layer of a SequentialModel has no name; give it one, because parameter names are made from it");
  if (std::any_of(layers_.begin(), layers_.end(), [&](const Named& layer) { return layer.name == name; }))
    throw UserError(
        "two layers of a SequentialModel are called {}; give them different names, because parameter names are made "
        "from them",
        name);
  layers_.push_back({name, std::move(make)});
  description_.reset();
}

void SequentialModel::configure(const std::string& /*config_json*/) {}

std::int64_t SequentialModel::maximum_sequence_length() const {
  return std::numeric_limits<std::int64_t>::max();
}

std::unique_ptr<Layer> SequentialModel::build(int layer, ModelContext& context) const {
  const Named& named = layers_.at(static_cast<std::size_t>(layer));
  std::unique_ptr<Layer> made = named.make(context);
  for (Parameter* parameter : made->parameters()) parameter->info.name = named.name + "." + parameter->info.name;
  return made;
}

LayerInfo SequentialModel::describe(int layer, const BatchShape& batch) const {
  const bool known = description_ && description_->batch.micro_batch == batch.micro_batch &&
                     description_->batch.sequence_length == batch.sequence_length &&
                     description_->batch.activation == batch.activation;
  if (!known) description_ = describe_all(batch);
  return description_->layers.at(static_cast<std::size_t>(layer));
}

std::unique_ptr<SequentialModel::Description> SequentialModel::describe_all(const BatchShape& batch) const {
  auto description = std::make_unique<Description>(Description{batch, {}});
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = meta({batch.micro_batch, batch.sequence_length}, at::kLong);
  Tensors input;
  for (int number = 0; number < layers(); ++number) {
    DescribingContext context(batch);
    const std::unique_ptr<Layer> made = build(number, context);
    LayerInfo& info = description->layers.emplace_back();
    info.name = layers_[static_cast<std::size_t>(number)].name;
    for (Parameter* parameter : made->parameters()) {
      info.parameters.push_back(parameter->info);
      parameter->tensor = meta(parameter->info.shape, batch.activation);
    }
    LayerOutput output = made->forward(input, {tokens, tokens, 0});
    for (const Statistic& statistic : output.statistics) info.statistics.push_back(statistic.info);
    input = passed_on(std::move(output), info, number + 1 == layers());
    info.forward_flops = context.flops;
    info.activation_bytes = context.kept_bytes;
    for (const at::Tensor& tensor : input) {
      info.outputs.push_back({tensor.sizes().vec(), tensor.scalar_type()});
      info.activation_bytes += bytes(tensor);
    }
  }
  return description;
}

CheckpointNames SequentialModel::checkpoint_names() const {
  CheckpointNames names;
  for (int layer = 0; layer < layers(); ++layer) {
    DescribingContext context({});
    const std::unique_ptr<Layer> made = build(layer, context);
    for (const Parameter* parameter : made->parameters())
      names.names.emplace_back(parameter->info.name, parameter->info.name);
  }
  return names;
}

std::string SequentialModel::hugging_face_config(at::ScalarType dtype) const {
  const std::string name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
  return format("{{\"model_type\": \"strata_sequential\", \"vocab_size\": {}, \"torch_dtype\": \"{}\"}}\n", vocabulary_,
                name);
}

}  // namespace strata
