#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

#include <strata/format.hpp>

namespace strata::conformance::model_checks {

namespace {

std::string text(double value) {
  return std::to_string(value);
}

constexpr const char* sum_of_tokens =
    "loss_sum must be the SUM over valid tokens, not a mean: the engine divides by the valid tokens of all ranks";
constexpr const char* sum_of_samples =
    "an auxiliary loss must be a SUM over the samples that have a target, the same in any micro-batch, and not a mean";

void close(double found, double wanted, double scale, const std::string& what, const std::string& rule) {
  require(std::isfinite(found) && std::abs(found - wanted) <= 3e-5 * scale,
          what + ": " + text(found) + " and " + text(wanted) + "; " + rule);
}

}  // namespace

void loss_is_a_sum(const ModelWorld& world) {
  const auto [samples, length] = std::pair(world.shape.micro_batch, world.shape.sequence_length);
  const BuiltModel all(*world.model, world.shape, at::kFloat, 5),
      one(*world.model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = world.batch();
  batch.training = false;
  const double whole = all.loss(batch);
  require(std::isfinite(whole) && whole > 0.0,
          "the loss of a batch of random tokens is " + text(whole) + "; it must be finite and above 0");
  double parts = 0.0;
  for (std::int64_t sample = 0; sample < samples; ++sample) parts += one.loss(alone(batch, sample));
  close(whole, parts, whole, "the loss of all samples, and the sum of their separate losses", sum_of_tokens);
  at::Tensor even = batch.targets.clone(), odd = batch.targets.clone();
  for (std::int64_t row = 0; row < even.numel(); ++row)
    (world.draws.chance(2) ? even : odd).view({-1})[row].fill_(ignored);
  close(all.loss(with_targets(batch, even)) + all.loss(with_targets(batch, odd)), whole, whole,
        "the sum of the losses with each part of the targets set to -100, and the loss of all targets", sum_of_tokens);
  const MicroBatch none = with_targets(batch, at::full_like(batch.targets, ignored));
  close(all.loss(none), 0.0, 0.0, "the loss of a batch whose targets are all -100, and 0", sum_of_tokens);
  all.clear_gradients();
  all.backward(none, 1.0);
  for (const auto& [name, parameter] : all.parameters())
    require(!parameter.requires_grad() || parameter.grad().eq(0.0).all().item<bool>(),
            "the gradient of " + name + " of a batch whose targets are all -100 is not zero");
}

void auxiliary_loss_is_a_sum(const ModelWorld& world) {
  const auto [samples, length] = std::pair(world.shape.micro_batch, world.shape.sequence_length);
  const BuiltModel all(*world.model, world.shape, at::kFloat, 5),
      one(*world.model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = world.batch();
  const bool in_training = all.pass(batch).auxiliary_loss.has_value();
  batch.training = false;
  if (!in_training && !all.pass(batch).auxiliary_loss) return;
  const auto auxiliary_of = [](const BuiltModel& built, const MicroBatch& given) {
    const std::optional<double> found = built.pass(given).auxiliary_loss;
    require(found.has_value(),
            "layers give an auxiliary loss in training and none in evaluation, which reports it too");
    return *found;
  };
  const double whole = auxiliary_of(all, batch);
  const auto check = [&](double found, double wanted, const std::string& what) {
    close(found, wanted, std::abs(whole), what, sum_of_samples);
  };
  std::vector<double> parts;
  for (std::int64_t sample = 0; sample < samples; ++sample) parts.push_back(auxiliary_of(one, alone(batch, sample)));
  check(whole, std::accumulate(parts.begin(), parts.end(), 0.0),
        "the auxiliary loss of all samples, and the sum of their separate ones");
  check(auxiliary_of(all, batch), whole,
        "the auxiliary loss of the same samples after other micro-batches, and before");
  const std::int64_t left_out = world.draws.between(0, samples - 1);
  const at::Tensor targets = batch.targets.clone();
  targets.select(0, left_out).fill_(ignored);
  check(auxiliary_of(all, with_targets(batch, targets)), whole - parts[static_cast<std::size_t>(left_out)],
        "the auxiliary loss with all targets of sample " + std::to_string(left_out) +
            " set to -100, and that of the others");
}

void logits_say_the_loss(const ModelWorld& world) {
  const std::int64_t rows = world.shape.rows(), vocabulary = world.model->vocabulary();
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  MicroBatch batch = world.batch();
  batch.training = false;
  const std::int64_t row = world.draws.between(0, rows - 1),
                     target = world.draws.chance(3) ? vocabulary - 1 : world.draws.between(0, vocabulary - 1);
  const at::Tensor targets = at::full_like(batch.targets, ignored);
  targets.view({-1})[row] = target;
  const double loss = built.loss(with_targets(batch, targets));
  const auto check = [&](const at::Tensor& asked, std::int64_t place, const std::string& what) {
    MicroBatch asking = with_targets(batch, at::full_like(batch.targets, ignored));
    asking.asked_rows = asked;
    const at::Tensor logits = built.pass(asking).last.logits;
    if (!logits.defined()) return;  // `strata sample` refuses the model
    require(logits.scalar_type() == at::kFloat && logits.sizes() == at::IntArrayRef{asked.size(0), vocabulary},
            "the logits of " + std::to_string(asked.size(0)) + " asked rows are " + text_of(logits) +
                "; they must be fp32 [asked rows, vocabulary]");
    close(-logits.log_softmax(1)[place][target].item<double>(), loss, std::max(loss, 0.1),
          "the loss of id " + std::to_string(target) + " in row " + std::to_string(row) + " by its logits " + what,
          "row r of the logits must be of row asked_rows[r] (sample x length + token), and unscaled");
  };
  check(at::arange(rows - 1, -1, -1, at::kLong), rows - 1 - row, "among those of all rows, asked for backwards");
  check(at::full({1}, row, at::kLong), 0, "alone");
}

void sees_no_future(const ModelWorld& world) {
  const std::int64_t length = world.shape.sequence_length;
  if (length < 2) return;
  const std::int64_t seen = world.draws.between(1, length - 1), place = world.draws.between(seen, length - 1);
  const BuiltModel built(*world.model, world.shape, at::kFloat, 5);
  MicroBatch batch = world.batch();
  batch.training = false;
  const auto changed = [&](std::int64_t token) {
    MicroBatch other = batch;
    other.tokens = batch.tokens.clone();
    other.tokens.select(1, token).add_(1).remainder_(world.model->vocabulary());
    return other;
  };
  const at::Tensor targets = batch.targets.clone();  // of the first tokens only
  targets.narrow(1, seen, length - seen).fill_(ignored);
  const double loss = built.loss(with_targets(batch, targets)),
               other = built.loss(with_targets(changed(place), targets));
  require(std::abs(other - loss) <= 1e-5 * loss,
          format("the loss of tokens 0 to {} is {}, but with another token {} it is {}; a token must not see later "
                 "tokens, because token t + 1 is the target of token t",
                 seen - 1, text(loss), place, text(other)));
  targets.narrow(1, 0, seen - 1).fill_(ignored);
  require(built.loss(with_targets(changed(seen - 1), targets)) != built.loss(with_targets(batch, targets)),
          "the loss of token " + std::to_string(seen - 1) + " does not depend on that token");
}

}  // namespace strata::conformance::model_checks
