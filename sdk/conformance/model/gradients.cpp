#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

namespace strata::conformance::model_checks {

namespace {

std::string number(double value) {
  std::ostringstream text;
  text.precision(6);
  text << value;
  return text.str();
}

// A model in fp64 where it runs in that, else in fp32, with the step and the precision of its loss.
struct Precise {
  std::unique_ptr<BuiltModel> model;
  double step = 0.0;
  double unit = 0.0;  // relative error of the loss
};

Precise build_precise(const ModelWorld& world, const MicroBatch& batch) {
  BatchShape shape = world.shape;
  shape.activation = at::kDouble;
  try {
    auto built = std::make_unique<BuiltModel>(*world.model, shape, at::kDouble, 5);
    const bool wide = built->pass(batch).last.loss_sum.scalar_type() == at::kDouble;
    built->backward(batch, 1.0);
    return {std::move(built), wide ? 1e-4 : 2e-2, wide ? 1e-14 : 1e-7};
  } catch (const c10::Error&) {
  } catch (const Error&) {
  }
  return {std::make_unique<BuiltModel>(*world.model, world.shape, at::kFloat, 5), 2e-2, 1e-6};
}

// The objective with a parameter moved by `distance` along `direction`.
double moved_loss(const BuiltModel& model, const MicroBatch& batch, const at::Tensor& parameter,
                  const at::Tensor& direction, double distance) {
  const c10::NoGradGuard no_grad;
  const at::Tensor before = parameter.detach().clone();
  parameter.detach().add_(direction, distance);
  const double loss = model.objective(batch);
  parameter.detach().copy_(before);
  return loss;
}

void check_direction(const Precise& precise, const MicroBatch& batch, const std::string& name,
                     const at::Tensor& parameter, const at::Tensor& direction, double loss, const std::string& along) {
  const auto slope = [&](double step) {
    return (moved_loss(*precise.model, batch, parameter, direction, step) -
            moved_loss(*precise.model, batch, parameter, direction, -step)) /
           (2 * step);
  };
  const double wide = slope(precise.step), narrow = slope(precise.step / 2);
  const double extrapolated = (4 * narrow - wide) / 3;  // Richardson: the error of the second order cancels
  const double gradient = (parameter.grad().to(at::kDouble) * direction.to(at::kDouble)).sum().item<double>();
  // The error left, the rounding of two losses, and the rounding of parts of a layer in fp32.
  const double bound = std::abs(narrow - wide) + 20 * precise.unit * std::abs(loss) / precise.step +
                       1e-4 * std::abs(gradient) + 1e-5 * parameter.grad().norm().item<double>();
  require(std::abs(gradient - extrapolated) <= bound,
          "the slope of the loss with respect to " + name + " along " + along + " is " + number(extrapolated) +
              " by finite differences (within " + number(bound) + "), but " + number(gradient) + " by its gradient");
}

// By name, each divided by the seed.
std::map<std::string, at::Tensor> gradients(const BuiltModel& built, MicroBatch batch, double seed) {
  batch.loss_seed = at::full({}, seed, at::kFloat);
  built.clear_gradients();
  built.backward(batch, seed);
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, parameter] : built.parameters())
    if (parameter.requires_grad()) all[name] = parameter.grad().to(at::kDouble) / seed;
  return all;
}

// A scale for comparing each in addition to its own size: some are 0 but for rounding, as of keys where a token sees
// only itself.
double largest_norm(const std::map<std::string, at::Tensor>& gradients) {
  double largest = 0.0;
  for (const auto& [name, gradient] : gradients) largest = std::max(largest, gradient.norm().item<double>());
  return largest;
}

}  // namespace

void gradients_match_finite_differences(const ModelWorld& world) {
  MicroBatch batch = world.batch();
  if (batch.targets.numel() > 1) batch.targets.select(0, 0).select(0, 0).fill_(-100);
  const Precise precise = build_precise(world, batch);
  precise.model->clear_gradients();
  precise.model->backward(batch, 1.0);
  const double loss = precise.model->objective(batch);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : precise.model->parameters())
    if (parameter.requires_grad()) names.push_back(name);
  require(!names.empty(), "the model has no trainable parameter");
  const std::string name = world.draws.pick(names);
  const at::Tensor& parameter = precise.model->parameters().at(name);
  require(parameter.grad().isfinite().all().item<bool>(), "the gradient of " + name + " is not finite");
  const at::Tensor signs = at::empty({parameter.numel()}, at::kDouble);
  for (std::int64_t i = 0; i < signs.numel(); ++i)
    signs.mutable_data_ptr<double>()[i] = mixed(7, static_cast<std::uint64_t>(i)) % 2 == 0 ? 1.0 : -1.0;
  check_direction(
      precise, batch, name, parameter,
      (signs / std::sqrt(static_cast<double>(signs.numel()))).view(parameter.sizes()).to(parameter.scalar_type()), loss,
      "a random direction");
  const double norm = parameter.grad().norm().item<double>();
  if (norm > 0.0)
    check_direction(precise, batch, name, parameter, parameter.grad().clone() / norm, loss, "its own gradient");
}

void loss_seed_scales_gradients(const ModelWorld& world) {
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  const std::map<std::string, at::Tensor> plain = gradients(built, world.batch(), 1.0);
  const double seed = world.draws.chance(2) ? 4096.0 : 1.0 / 48.0;
  for (const auto& [name, gradient] : gradients(built, world.batch(), seed)) {
    const double scale = plain.at(name).abs().max().item<double>(),
                 apart = (gradient - plain.at(name)).abs().max().item<double>();
    require(apart <= 1e-4 * scale + 1e-6 * largest_norm(plain),
            "with loss_seed and backward's seed " + number(seed) + " the gradient of " + name +
                ", divided by the seed, differs by up to " + number(apart) +
                " from the one with seed 1, whose largest element is " + number(scale) +
                "; the seed must be applied exactly once, also if a layer multiplies by loss_seed early");
  }
}

void gradients_are_sums(const ModelWorld& world) {
  const std::int64_t length = world.shape.sequence_length;
  const BuiltModel all(*world.model, world.shape, at::kFloat, 5),
      one(*world.model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = world.batch();
  batch.training = false;
  std::map<std::string, at::Tensor> sum;
  std::map<std::string, double> sizes;
  for (std::int64_t sample = 0; sample < world.shape.micro_batch; ++sample)
    for (const auto& [name, gradient] : gradients(one, alone(batch, sample), 1.0)) {
      sum[name] = sum.contains(name) ? sum[name] + gradient : gradient;
      sizes[name] += gradient.norm().item<double>();
    }
  const std::map<std::string, at::Tensor> together = gradients(all, batch, 1.0);
  for (const auto& [name, gradient] : together) {
    const double apart = (gradient - sum.at(name)).norm().item<double>();
    require(apart <= 1e-4 * sizes.at(name) + 1e-6 * largest_norm(together),
            "the gradient of " + name + " of all samples and the sum of those of each alone are " + number(apart) +
                " apart, where the samples' have a norm of " + number(sizes.at(name)) +
                "; a run with other micro-batches would train differently");
  }
}

void linear_only_is_true(Subject& subject) {
  const auto model = make_small(subject);
  const std::int64_t length = std::min<std::int64_t>(model->maximum_sequence_length(), 6);
  const BuiltModel built(*model, {2, length, at::kFloat}, at::kFloat, 5);
  const std::vector<std::string> names = built.linear_only();
  const bool declared = subject.can(Capability::SplittableBackward);
  require(!declared || !names.empty(),
          "it declares splittable_backward and none of its parameters is linear_only; a split backward leaves nothing");
  if (names.empty()) throw Skip("none of its parameters is linear_only");
  require(declared, names.front() +
                        " is linear_only, and the manifest does not declare splittable_backward; a "
                        "schedule that splits the backward would refuse the model");
  built.give_weight_gradients(false);
  built.backward(draw_batch(*model, 2, length, 6), 1.0);
  for (const std::string& name : names)
    require(
        built.parameters().at(name).grad().abs().max().item<double>() == 0.0,
        name +
            " is linear_only and gets a gradient in another way than through ModelContext::linear too; a run in which "
            "its gradient would be wrong is ended");
}

}  // namespace strata::conformance::model_checks
