#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <strata/format.hpp>
#include <strata/parameter_cut.hpp>

#include <algorithm>
#include <set>
#include <sstream>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

namespace strata::conformance::model_checks {

namespace {

std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

std::string text_of_split(const Split& split) {
  if (split.dimension < 0) return "";
  return format(" split along dimension {} in {} blocks of units of {}", split.dimension, split.blocks, split.unit);
}

std::string text_of_parameter(const ParameterInfo& info) {
  std::ostringstream text;
  text << info.name << " " << text_of_shape(info.shape) << (info.trainable ? "" : " frozen")
       << (info.tie.empty() ? "" : " tied as " + info.tie) << text_of_split(info.split) << ", initializer "
       << static_cast<int>(info.initializer.kind) << "(" << info.initializer.mean << ", " << info.initializer.deviation
       << ")";
  return text.str();
}

std::string layer_text(int layer, const LayerInfo& info) {
  return format("layer {} ({})", layer, info.name);
}

// Stands before libtorch's allocator of host memory and counts.
class CountingFront final : public c10::Allocator {
 public:
  CountingFront() : behind_(c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, this, 255); }
  ~CountingFront() override { c10::SetAllocator(c10::kCPU, behind_, 255); }
  CountingFront(const CountingFront&) = delete;
  CountingFront& operator=(const CountingFront&) = delete;
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes > one_number) bytes_ += bytes;
    return behind_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { behind_->copy_data(to, from, bytes); }
  std::size_t bytes() const { return bytes_; }

 private:
  // Bytes of the largest: libtorch makes a tensor of every factor that is a number, also of a meta tensor's.
  static constexpr std::size_t one_number = 16;

  c10::Allocator* behind_;
  std::size_t bytes_ = 0;
};

void check_output(const LayerOutput& output, const LayerInfo& info, bool last, const std::string& what) {
  require(
      output.activations.size() == info.outputs.size(),
      format("{} gives {} activations, but describe() lists {}", what, output.activations.size(), info.outputs.size()));
  for (std::size_t i = 0; i < info.outputs.size(); ++i) {
    const at::Tensor& tensor = output.activations[i];
    const TensorShape& shape = info.outputs[i];
    require(
        tensor.sizes() == at::IntArrayRef(shape.extents) && tensor.scalar_type() == shape.dtype,
        format(
            "{} gives {} as activation {}, but describe() says {} {}; the next stage allocates its input by describe()",
            what, text_of(tensor), i, text_of_shape(shape.extents), c10::toString(shape.dtype)));
  }
  const auto check_loss = [&](const at::Tensor& loss, const std::string& name) {
    const at::ScalarType dtype = loss.scalar_type();
    require(loss.dim() == 0 && (dtype == at::kFloat || dtype == at::kDouble),
            what + " gives " + name + " " + text_of(loss) + "; it must be fp32 and 0-dimensional");
  };
  const auto info_of = [](const Statistic& statistic) { return statistic.info; };
  require(std::ranges::equal(output.statistics, info.statistics, {}, info_of),
          format("{} gives {} statistics, which are not the {} that describe() lists, in their order", what,
                 output.statistics.size(), info.statistics.size()));
  for (const Statistic& statistic : output.statistics)
    require(
        statistic.value.defined() && statistic.value.dim() == 0 && statistic.value.is_floating_point(),
        format("{} gives a statistic {} that is no floating-point tensor of 0 dimensions", what, statistic.info.name));
  if (output.auxiliary_loss.defined()) check_loss(output.auxiliary_loss, "an auxiliary_loss");
  require(output.loss_sum.defined() == last, what + (last ? " is the last layer but returns no loss_sum"
                                                          : " is not the last layer but returns a loss_sum"));
  if (last) check_loss(output.loss_sum, "a loss_sum");
}

void check_batch(const Model& model, const BatchShape& shape, at::Device device) {
  const BuiltModel built(model, shape, shape.activation, 3, device);
  const MicroBatch batch = draw_batch(model, shape.micro_batch, shape.sequence_length, 4, device);
  const c10::NoGradGuard no_grad;
  Tensors input;
  for (int layer = 0; layer < built.layers(); ++layer) {
    const LayerInfo info = model.describe(layer, shape);
    LayerOutput output = built.forward(layer, input, batch);
    check_output(output, info, layer + 1 == built.layers(),
                 layer_text(layer, info) + ", a batch of " + std::to_string(shape.micro_batch) + " x " +
                     std::to_string(shape.sequence_length) + " in " + c10::toString(shape.activation) +
                     (device.is_meta() ? " on meta tensors," : ","));
    input = std::move(output.activations);
  }
}

}  // namespace

void parameters_as_described(const ModelWorld& world) {
  const Model& model = *world.model;
  fakes::FakeModelContext context(world.shape);
  require(model.layers() >= 1 && model.vocabulary() >= 1 && model.maximum_sequence_length() >= 1,
          format("layers, vocabulary and maximum sequence length must be at least 1; the model gives {}, {} and {}",
                 model.layers(), model.vocabulary(), model.maximum_sequence_length()));
  std::set<std::string> layers;
  std::map<std::string, ParameterInfo> names, ties;
  for (int number = 0; number < model.layers(); ++number) {
    std::size_t allocated = 0;
    const LayerInfo info = [&] {
      const CountingFront count;
      LayerInfo described = model.describe(number, world.shape);
      allocated = count.bytes();
      return described;
    }();
    const std::string where = layer_text(number, info);
    require(
        allocated == 0,
        format(
            "describe() of {} allocated {} bytes of tensors; it must also work for models that do not fit into memory",
            where, allocated));
    require(!info.name.empty() && layers.insert(info.name).second,
            where + ": layer names must be unique and not empty");
    const std::unique_ptr<Layer> layer = model.build(number, context);
    require(layer != nullptr, "build() returns null for " + where);
    const std::vector<Parameter*> parameters = layer->parameters();
    require(parameters == layer->parameters(), where + ": parameters() returns other pointers the second time");
    require(parameters.size() == info.parameters.size(),
            format("{} has {} parameters, but describe() lists {}", where, parameters.size(), info.parameters.size()));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ParameterInfo& one = info.parameters[i];
      const std::string built = text_of_parameter(parameters[i]->info), described = text_of_parameter(one);
      require(built == described, format("{}: parameter {} is '{}', but describe() says '{}'; the engine allocates and "
                                         "fills parameters by describe()",
                                         where, i, built, described));
      require(!one.name.empty() && std::ranges::all_of(one.shape, [](std::int64_t extent) { return extent > 0; }),
              where + ": '" + described + "' must have a name, and sizes above 0");
      const ParameterCut whole(one, 1);  // throws Bug if the split is impossible
      require(whole.elements() == one.elements(), one.name + " is not whole on one rank");
      const auto [first, is_new] = names.emplace(one.name, one);
      require(is_new || (!one.tie.empty() && first->second.tie == one.tie),
              "two parameters are called " + one.name + ", in " + where +
                  " for the second time, without a common tie; give them different names, or the same tie if they are "
                  "one parameter");
      if (one.tie.empty()) continue;
      const ParameterInfo& other = ties.emplace(one.tie, one).first->second;
      require(other.shape == one.shape && other.split == one.split && other.trainable == one.trainable,
              "tie " + one.tie + " holds " + text_of_parameter(other) + " and " + described +
                  "; parameters with the same tie must be equal");
    }
  }
  require(!names.empty(), "the model has no parameters");
}

void outputs_as_described(const ModelWorld& world) {
  BatchShape shape = world.shape;
  if (world.draws.chance(2)) shape.activation = at::kBFloat16;
  for (const at::Device device : {at::kCPU, at::kMeta}) check_batch(*world.model, shape, device);
}

}  // namespace strata::conformance::model_checks
