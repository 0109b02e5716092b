#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/precision_policy.hpp>

#include <algorithm>
#include <cmath>

#include "conformance/model/checks.hpp"
#include "stage/linear.hpp"

namespace strata::conformance::model_checks {

namespace {

class PlainProducts final : public PrecisionPolicy {
 public:
  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  double loss_scale() const override { return 1.0; }
  Verdict judge(const GradientHealth& /*health*/) override { return Verdict::Apply; }
};

struct Gradients {
  double loss = 0.0;
  CombinedStatistics statistics;
  std::map<std::string, at::Tensor> by_name;

  Gradients() = default;
  Gradients(const BuiltModel& built, const MicroBatch& batch)
      : loss(built.loss(batch)), statistics(built.pass(batch).statistics) {
    built.backward(batch, 1.0);
    for (const auto& [name, parameter] : built.parameters())
      if (parameter.requires_grad()) by_name[name] = parameter.grad().to(at::kDouble);
  }
};

}  // namespace

void tensor_parts_agree(const ModelWorld& world) {
  if (!world.subject.can(Capability::TensorParallel)) return;
  BatchShape shape = world.shape;
  shape.tensor_ranks = static_cast<int>(world.draws.between(2, 4));
  shape.sequence_parallel = world.draws.chance(2);
  MicroBatch batch = world.batch();
  batch.training = false;
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  const Gradients whole(built, batch);
  std::vector<Gradients> parts(static_cast<std::size_t>(shape.tensor_ranks));
  PlainProducts products;
  std::vector<std::unique_ptr<fakes::LoadedPlugin<Model>>> models;
  for (int rank = 0; rank < shape.tensor_ranks; ++rank)
    models.push_back(std::make_unique<fakes::LoadedPlugin<Model>>(
        world.subject.make<Model>(world.options, rank, MeshShape{{Axis::Tensor, shape.tensor_ranks}})));
  try {
    fakes::on_ranks(shape.tensor_ranks, [&](CheckedGroup& group) {
      at::set_num_threads(1);
      const auto index = static_cast<std::size_t>(group.rank());
      stage::LayerGroups groups;
      groups.set(Axis::Tensor, group);
      const BuiltModel part(**models[index],
                            std::make_unique<stage::Linear>(products, "precision/plain", group.rank(), shape, groups),
                            group.rank(), 5);
      parts[index] = Gradients(part, batch);
    });
  } catch (const UserError&) {
    return;  // its heads or channels cannot be cut so
  }
  const std::string among = " among " + count(shape.tensor_ranks, "tensor-parallel rank") +
                            (shape.sequence_parallel ? " that share the stream's rows" : "");
  double largest = 0.0;
  for (const auto& [name, gradient] : whole.by_name) largest = std::max(largest, gradient.norm().item<double>());
  for (int rank = 0; rank < shape.tensor_ranks; ++rank) {
    const Gradients& part = parts[static_cast<std::size_t>(rank)];
    require(std::abs(part.loss - whole.loss) <= 3e-5 * std::abs(whole.loss),
            format("the loss on rank {}{} is {}; on one rank it is {}", rank, among, part.loss, whole.loss));
    for (const auto& [name, wanted] : whole.statistics) {
      const double found = part.statistics.at(name).value;
      require(std::abs(found - wanted.value) <= 3e-5 * std::abs(wanted.value),
              format("statistic {} on rank {}{} is {}; on one rank it is {}", name, rank, among, found, wanted.value));
    }
    for (const auto& [name, gradient] : whole.by_name) {
      const ParameterInfo& info = built.infos().at(name);
      at::Tensor found = part.by_name.at(name);
      if (info.sums_over_tensor(shape.sequence_parallel)) {
        found = at::zeros_like(found);
        for (const Gradients& each : parts) found.add_(each.by_name.at(name));
      }
      const at::Tensor wanted = part_of(gradient, info, shape.tensor_ranks, rank);
      const double apart = (found - wanted).norm().item<double>();
      require(apart <= 1e-4 * gradient.norm().item<double>() + 1e-5 * largest,
              format("the gradient of rank {}'s part of {}{} is {} from its part of that on one rank, whose norm is "
                     "{}; see [Note: tensor parallelism] and ParameterInfo's split and tensor_gradient",
                     rank, name, among, apart, gradient.norm().item<double>()));
    }
  }
}

}  // namespace strata::conformance::model_checks
