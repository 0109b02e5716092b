#include "conformance/model/built_model.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>
#include <strata/parameter_cut.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>

#include "state/initial_values.hpp"

namespace strata::conformance {

namespace {

constexpr std::int64_t most_parameters = 50'000'000;

// Small values of options as models name them; heads of 16 dimensions.
const std::vector<std::pair<std::vector<std::string>, std::string>> usual{
    {{"hidden_size", "hidden", "width", "n_embd", "d_model", "embedding_size"}, "32"},
    {{"layers", "n_layer", "num_layers", "num_hidden_layers", "depth", "blocks"}, "2"},
    {{"heads", "n_head", "num_heads", "num_attention_heads", "kv_heads", "num_key_value_heads"}, "2"},
    {{"intermediate_size", "n_inner", "ffn_size"}, "48"},
    {{"vocabulary", "vocab_size"}, "61"}};

std::vector<fakes::OptionTexts> candidates(const Subject& subject) {
  std::vector<fakes::OptionTexts> all{{}};
  fakes::OptionTexts sizes;
  for (const OptionSpec& option : subject.manifest().options) {
    for (const auto& [names, text] : usual)
      if (option.type == "integer" && std::find(names.begin(), names.end(), option.name) != names.end())
        sizes.emplace_back(option.name, text);
    if (option.name == "preset")
      for (const std::string& choice : option.choices) all.push_back({{"preset", choice}});
  }
  if (!sizes.empty()) all.push_back(sizes);
  return all;
}

// While it lives, the parameters on the host are NaN. Their memory is overwritten without autograd's knowledge, as a
// run does that uses the memory of released parameters for others.
class HiddenValues {
 public:
  explicit HiddenValues(const std::vector<Parameter*>& parameters) {
    for (const Parameter* parameter : parameters) {
      const at::Tensor values = parameter->tensor.detach();
      if (!values.is_cpu()) continue;
      hidden_.emplace_back(values, values.clone());
      std::memset(values.data_ptr(), 0xff, values.nbytes());
    }
  }
  ~HiddenValues() {
    for (const auto& [values, copy] : hidden_) std::memcpy(values.data_ptr(), copy.data_ptr(), values.nbytes());
  }
  HiddenValues(const HiddenValues&) = delete;
  HiddenValues& operator=(const HiddenValues&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> hidden_;  // and their values
};

}  // namespace

std::int64_t count_parameters(const Model& model) {
  std::int64_t count = 0;
  for (int layer = 0; layer < model.layers(); ++layer)
    for (const ParameterInfo& info : model.describe(layer, {1, 8, at::kFloat}).parameters) count += info.elements();
  return count;
}

void set_seed(std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

fakes::OptionTexts small_options(Subject& subject) {
  std::optional<fakes::OptionTexts> best;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  std::string refusal;
  for (const fakes::OptionTexts& options : candidates(subject)) {
    try {
      const auto model = subject.make<Model>(options);
      const std::int64_t count = count_parameters(*model);
      if (count >= fewest) continue;
      fewest = count;
      best = options;
    } catch (const UserError& error) {
      refusal = error.what();
    }
  }
  if (!best) throw Skip("no model can be created from the defaults, the presets or common small sizes: " + refusal);
  if (fewest > most_parameters)
    throw Skip("the smallest model that the kit can configure (" + to_string(*best) + ") has " +
               std::to_string(fewest) +
               " parameters; give it small defaults, a preset, or options hidden_size, layers, heads, vocabulary");
  return *best;
}

std::vector<fakes::OptionTexts> size_settings(Subject& subject) {
  std::vector<fakes::OptionTexts> all = candidates(subject);
  const fakes::OptionTexts small = small_options(subject);
  for (const fakes::OptionTexts& setting : subject.settings()) {
    fakes::OptionTexts both = small;
    both.insert(both.end(), setting.begin(), setting.end());  // the later of two values counts
    all.push_back(both);
  }
  return all;
}

fakes::LoadedPlugin<Model> make_small(Subject& subject) {
  return subject.make<Model>(small_options(subject));
}

at::Tensor part_of(const at::Tensor& whole, const ParameterInfo& info, int ranks, int rank) {
  const ParameterCut cut(info, ranks);
  const at::Tensor part = at::zeros({cut.elements()}, whole.options()), row = whole.reshape({-1});
  cut.for_each_run(cut.part_of(rank), 0, cut.elements(), [&](const ParameterCut::Run& run) {
    part.narrow(0, run.in_part, run.elements).copy_(row.narrow(0, run.whole, run.elements));
  });
  return part.view(cut.shape());
}

BuiltModel::BuiltModel(const Model& model, const BatchShape& batch, at::ScalarType dtype, std::uint64_t seed,
                       at::Device device, int only) {
  auto plain = std::make_unique<fakes::FakeModelContext>(batch);
  plain_ = plain.get();
  context_ = std::move(plain);
  build(model, dtype, seed, device, only);
}

BuiltModel::BuiltModel(const Model& model, std::unique_ptr<ModelContext> context, int rank, std::uint64_t seed)
    : context_(std::move(context)), rank_(rank) {
  build(model, at::kFloat, seed, at::kCPU, -1);
}

void BuiltModel::build(const Model& model, at::ScalarType dtype, std::uint64_t seed, at::Device device, int only) {
  for (int layer = 0; layer < model.layers(); ++layer) {
    layers_.push_back(only < 0 || only == layer ? model.build(layer, *context_) : nullptr);
    backward_reads_weights_.push_back(model.describe(layer, context_->batch()).backward_reads_weights);
    if (layers_.back() == nullptr) continue;
    for (Parameter* parameter : layers_.back()->parameters()) place(*parameter, dtype, seed, device);
  }
}

// The initial values plus random numbers: a parameter of zeros would hide its effect.
void BuiltModel::place(Parameter& parameter, at::ScalarType dtype, std::uint64_t seed, at::Device device) {
  ParameterInfo info = parameter.info;
  if (!info.tie.empty()) info.name = info.tie;
  at::Tensor& tensor = parameters_[info.name];
  infos_.emplace(info.name, info);
  if (!tensor.defined()) {
    if (device.is_meta()) {
      tensor = at::empty(info.shape, at::TensorOptions().dtype(dtype).device(device));
    } else {
      const at::Tensor values = at::empty({info.elements()}, at::kFloat),
                       noise = at::empty({info.elements()}, at::kFloat);
      state::fill_initial_values(values, info, 0, seed);
      info.initializer = Initializer::uniform(-0.3, 0.3);
      state::fill_initial_values(noise, info, 0, seed + 1);
      tensor = part_of(values.add(noise).to(dtype), info, context_->batch().tensor_ranks, rank_);
    }
    tensor.set_requires_grad(info.trainable);
    if (info.trainable) tensor.mutable_grad() = at::zeros_like(tensor.detach());
  }
  parameter.tensor = tensor;
}

LayerOutput BuiltModel::forward(int layer, const Tensors& input, const MicroBatch& batch) const {
  if (batch.training) set_seed(static_cast<std::uint64_t>(1000 * batch.sample + layer));
  return layers_[static_cast<std::size_t>(layer)]->forward(input, batch);
}

BuiltModel::Passage BuiltModel::pass(const MicroBatch& batch) const {
  const c10::NoGradGuard no_grad;
  Passage passage;
  for (int layer = 0; layer < layers(); ++layer) {
    passage.inputs.push_back(std::move(passage.last.activations));
    passage.last = forward(layer, passage.inputs.back(), batch);
    if (passage.last.auxiliary_loss.defined())
      passage.auxiliary_loss = passage.auxiliary_loss.value_or(0.0) + passage.last.auxiliary_loss.item<double>();
    for (const auto& [info, value] : passage.last.statistics)
      passage.statistics.try_emplace(info.name, Combined::nothing(info.kind)).first->second.add(value.item<double>());
  }
  return passage;
}

double BuiltModel::loss(const MicroBatch& batch) const {
  const LayerOutput last = pass(batch).last;
  require(last.loss_sum.defined(), "the last layer returned no loss_sum");
  return last.loss_sum.item<double>();
}

double BuiltModel::objective(const MicroBatch& batch) const {
  const Passage passage = pass(batch);
  require(passage.last.loss_sum.defined(), "the last layer returned no loss_sum");
  return passage.last.loss_sum.item<double>() + passage.auxiliary_loss.value_or(0.0);
}

void BuiltModel::backward(const MicroBatch& batch, double seed) const {
  const c10::AutoGradMode grad_mode(true);
  std::vector<Tensors> inputs;
  std::vector<LayerOutput> outputs;
  for (int layer = 0; layer < layers(); ++layer) {
    Tensors& input = inputs.emplace_back();
    if (layer > 0)
      for (const at::Tensor& tensor : outputs.back().activations) {
        input.push_back(tensor.detach());
        if (c10::isFloatingType(tensor.scalar_type())) input.back().set_requires_grad(true);
      }
    outputs.push_back(forward(layer, input, batch));
  }
  require(outputs.back().loss_sum.defined(), "the last layer returned no loss_sum");
  Tensors results, seeds;
  const auto start = [&](const at::Tensor& loss) {
    results.push_back(loss);
    seeds.push_back(at::full({}, seed, loss.options().requires_grad(false)));
  };
  start(outputs.back().loss_sum);
  for (int layer = layers(); layer-- > 0;) {
    const auto index = static_cast<std::size_t>(layer);
    if (const at::Tensor& loss = outputs[index].auxiliary_loss; loss.defined() && loss.requires_grad()) start(loss);
    Tensors leaves;
    for (const Parameter* parameter : layers_[index]->parameters())
      if (parameter->info.trainable) leaves.push_back(parameter->tensor);
    for (const at::Tensor& tensor : inputs[index])
      if (tensor.requires_grad()) leaves.push_back(tensor);
    if (!results.empty() && !leaves.empty()) {
      const HiddenValues hidden(backward_reads_weights_[index] ? std::vector<Parameter*>()
                                                               : layers_[index]->parameters());
      torch::autograd::backward(results, seeds, false, false, leaves);
    }
    results.clear();
    seeds.clear();
    for (std::size_t i = 0; i < inputs[index].size(); ++i) {
      const at::Tensor& before = outputs[index - 1].activations[i];
      if (!before.requires_grad()) continue;
      results.push_back(before);
      seeds.push_back(inputs[index][i].grad().defined() ? inputs[index][i].grad() : at::zeros_like(before.detach()));
    }
  }
}

void BuiltModel::clear_gradients() const {
  for (const auto& [name, tensor] : parameters_)
    if (tensor.grad().defined()) tensor.grad().zero_();
}

std::vector<std::string> BuiltModel::linear_only() const {
  std::vector<std::string> names;
  for (const auto& layer : layers_)
    for (const Parameter* parameter : layer == nullptr ? std::vector<Parameter*>() : layer->parameters())
      if (parameter->info.linear_only) names.push_back(parameter->info.name);
  return names;
}

MicroBatch draw_batch(const Model& model, std::int64_t samples, std::int64_t length, std::uint64_t seed,
                      at::Device device) {
  MicroBatch batch;
  batch.random_key = at::full({}, static_cast<std::int64_t>(seed), at::TensorOptions().dtype(at::kLong).device(device));
  if (device.is_meta()) {
    batch.tokens = at::empty({samples, length}, at::TensorOptions().dtype(at::kLong).device(device));
    batch.targets = at::empty({samples, length}, at::TensorOptions().dtype(at::kLong).device(device));
    return batch;
  }
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int64_t> token(0, model.vocabulary() - 1);
  const at::Tensor row = at::empty({samples, length + 1}, at::kLong);
  std::generate_n(row.mutable_data_ptr<std::int64_t>(), row.numel(), [&] { return token(random); });
  batch.tokens = row.narrow(1, 0, length).clone(at::MemoryFormat::Contiguous);
  batch.targets = row.narrow(1, 1, length).clone(at::MemoryFormat::Contiguous);
  return batch;
}

MicroBatch with_targets(const MicroBatch& batch, const at::Tensor& targets) {
  MicroBatch changed = batch;
  changed.targets = targets;
  return changed;
}

MicroBatch alone(const MicroBatch& batch, std::int64_t sample) {
  MicroBatch one = with_targets(batch, batch.targets.narrow(0, sample, 1).contiguous());
  one.tokens = batch.tokens.narrow(0, sample, 1).contiguous();
  one.sample = batch.sample + sample;
  return one;
}

std::string text_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << " " << c10::toString(tensor.scalar_type());
  return text.str();
}

}  // namespace strata::conformance
