#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

#include <strata/format.hpp>

namespace strata::conformance::model_checks {

namespace {

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

// Throws Failure unless both give the same bits.
void compare(const LayerOutput& a, const LayerOutput& b, const std::string& what) {
  require(a.activations.size() == b.activations.size() && a.loss_sum.defined() == b.loss_sum.defined() &&
              a.auxiliary_loss.defined() == b.auxiliary_loss.defined(),
          what + " gives other tensors");
  for (std::size_t i = 0; i < a.activations.size(); ++i)
    require(same_bytes(a.activations[i], b.activations[i]),
            what + " gives different bits in activation " + std::to_string(i) +
                "; a layer must depend only on its inputs, its parameters and the "
                "random generator, which the engine reseeds for it");
  require(!a.loss_sum.defined() || same_bytes(a.loss_sum, b.loss_sum), what + " gives another loss");
  require(!a.auxiliary_loss.defined() || same_bytes(a.auxiliary_loss, b.auxiliary_loss),
          what + " gives another auxiliary loss");
  const auto same = [](const Statistic& one, const Statistic& other) {
    return one.info == other.info && same_bytes(one.value, other.value);
  };
  require(std::ranges::equal(a.statistics, b.statistics, same), what + " gives other statistics");
}

std::string layer_text(const ModelWorld& world, int layer) {
  return format("layer {} ({})", layer, world.model->describe(layer, world.shape).name);
}

}  // namespace

void forward_repeats(const ModelWorld& world) {
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5), again(*world.model, world.shape, at::kFloat, 5);
  const MicroBatch batch = world.batch();
  const BuiltModel::Passage passage = built.pass(batch);
  for (int layer = 0; layer < built.layers(); ++layer) {
    const Tensors& input = passage.inputs[static_cast<std::size_t>(layer)];
    const std::string what = layer_text(world, layer);
    const c10::NoGradGuard no_grad;
    const LayerOutput first = built.forward(layer, input, batch);
    compare(first, built.forward(layer, input, batch), what + " run a second time");
    compare(first, again.forward(layer, input, batch), what + " built a second time");
    const c10::AutoGradMode recompute(true);
    LayerOutput with_graph = built.forward(layer, input, batch);
    with_graph.auxiliary_loss = first.auxiliary_loss;
    with_graph.statistics = first.statistics;
    with_graph.loss_sum = first.loss_sum;  // a loss may be summed differently if computed with its gradient

    compare(first, with_graph, what + " recomputed with a graph");
  }
}

void layers_stand_alone(const ModelWorld& world) {
  const BuiltModel whole(*world.model, world.shape, at::kFloat, 5);
  const MicroBatch batch = world.batch();
  const BuiltModel::Passage passage = whole.pass(batch);
  for (int layer = whole.layers(); layer-- > 0;) {
    const auto alone = world.subject.make<Model>(world.options);
    const BuiltModel built(*alone, world.shape, at::kFloat, 5, at::kCPU, layer);
    const Tensors& input = passage.inputs[static_cast<std::size_t>(layer)];
    const c10::NoGradGuard no_grad;
    compare(whole.forward(layer, input, batch), built.forward(layer, input, batch),
            layer_text(world, layer) + " of an instance that built no other layer, as on a pipeline stage,");
  }
}

void evaluation_is_deterministic(const ModelWorld& world) {
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  MicroBatch batch = world.batch();
  batch.training = false;
  const BuiltModel::Passage passage = built.pass(batch);
  for (int layer = 0; layer < built.layers(); ++layer) {
    const c10::NoGradGuard no_grad;
    std::vector<LayerOutput> outputs;
    for (const std::uint64_t seed : {11, 12}) {
      set_seed(seed);
      outputs.push_back(built.forward(layer, passage.inputs[static_cast<std::size_t>(layer)], batch));
    }
    compare(outputs[0], outputs[1], layer_text(world, layer) + " with training = false and other random numbers");
  }
}

void inputs_not_written(const ModelWorld& world) {
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  const MicroBatch batch = world.batch();
  const BuiltModel::Passage passage = built.pass(batch);
  for (int layer = 0; layer < built.layers(); ++layer) {
    const c10::NoGradGuard no_grad;
    Tensors input;  // of this layer alone
    for (const at::Tensor& tensor : passage.inputs[static_cast<std::size_t>(layer)]) input.push_back(tensor.clone());
    std::vector<std::pair<std::string, at::Tensor>> read{{"the batch's tokens", batch.tokens},
                                                         {"the batch's targets", batch.targets}};
    for (std::size_t i = 0; i < input.size(); ++i) read.emplace_back("its input " + std::to_string(i), input[i]);
    for (const auto& [name, tensor] : built.parameters()) read.emplace_back("parameter " + name, tensor);
    std::vector<at::Tensor> before;
    std::vector<std::int64_t> versions;
    for (const auto& [name, tensor] : read) {
      before.push_back(tensor.clone());
      versions.push_back(static_cast<std::int64_t>(tensor._version()));
    }
    (void)built.forward(layer, input, batch);
    for (std::size_t i = 0; i < read.size(); ++i)
      require(
          same_bytes(read[i].second, before[i]) && static_cast<std::int64_t>(read[i].second._version()) == versions[i],
          layer_text(world, layer) + " writes " + read[i].first +
              "; the engine reuses inputs for recomputation and in the previous layer's backward, and the partitioner "
              "owns "
              "the parameters");
  }
}

}  // namespace strata::conformance::model_checks
