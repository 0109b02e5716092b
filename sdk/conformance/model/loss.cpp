#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "model/built_model.hpp"
#include "model/checks.hpp"

namespace strata::conformance::model_checks {

namespace {

constexpr std::int64_t ignored = -100;

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

// The same tokens with other targets.
MicroBatch with_targets(const MicroBatch& batch, const at::Tensor& targets) {
  MicroBatch changed = batch;
  changed.targets = targets;
  return changed;
}

// One of its samples.
MicroBatch alone(const MicroBatch& batch, std::int64_t sample) {
  MicroBatch one = with_targets(batch, batch.targets.narrow(0, sample, 1).contiguous());
  one.tokens = batch.tokens.narrow(0, sample, 1).contiguous();
  one.sample = batch.sample + sample;
  return one;
}

std::int64_t usable_length(const Model& model, std::int64_t wanted) {
  return std::min(model.maximum_sequence_length(), wanted);
}

}  // namespace

void loss_is_a_sum(Subject& subject) {
  const auto model = make_small(subject);
  const std::int64_t length = usable_length(*model, 9);
  const BuiltModel two(*model, {2, length, at::kFloat}, at::kFloat, 5),
      one(*model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = draw_batch(*model, 2, length, 6);
  batch.training = false;
  const double whole = two.loss(batch);
  require(std::isfinite(whole) && whole > 0.0,
          "the loss of a batch of random tokens is " + text(whole) + "; it must be finite and above 0");
  double parts = 0.0;
  for (std::int64_t sample = 0; sample < 2; ++sample) parts += one.loss(alone(batch, sample));
  close(whole, parts, whole, "the loss of two samples, and the sum of their separate losses", sum_of_tokens);
  const at::Tensor even = batch.targets.clone(), odd = batch.targets.clone();
  even.select(0, 0).fill_(ignored);
  odd.select(0, 1).fill_(ignored);
  if (length > 2) {
    even.select(1, 1).fill_(ignored);
    odd.select(1, 1).copy_(batch.targets.select(1, 1));
  }
  close(two.loss(with_targets(batch, even)) + two.loss(with_targets(batch, odd)), whole, whole,
        "the sum of the losses with each half of the targets set to -100, and the loss of all targets", sum_of_tokens);
  const MicroBatch none = with_targets(batch, at::zeros_like(batch.targets).fill_(ignored));
  close(two.loss(none), 0.0, 0.0, "the loss of a batch whose targets are all -100, and 0", sum_of_tokens);
  two.clear_gradients();
  two.backward(none, 1.0);
  for (const auto& [name, parameter] : two.parameters()) {
    if (!parameter.requires_grad()) continue;
    require(parameter.grad().eq(0.0).all().item<bool>(),
            "the gradient of " + name + " of a batch whose targets are all -100 is not zero");
  }
}

void auxiliary_loss_is_a_sum(Subject& subject) {
  const auto model = make_with_auxiliary_loss(subject);
  const std::int64_t length = usable_length(*model, 9);
  const BuiltModel two(*model, {2, length, at::kFloat}, at::kFloat, 5),
      one(*model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = draw_batch(*model, 2, length, 6);
  batch.training = false;
  const auto auxiliary_of = [](const BuiltModel& built, const MicroBatch& given) {
    const std::optional<double> found = built.pass(given).auxiliary_loss;
    require(found.has_value(),
            "layers give an auxiliary loss in training and none in evaluation, which reports it too");
    return *found;
  };
  const double whole = auxiliary_of(two, batch);
  const auto check = [&](double found, double wanted, const std::string& what) {
    close(found, wanted, std::abs(whole), what, sum_of_samples);
  };
  const double first = auxiliary_of(one, alone(batch, 0)), second = auxiliary_of(one, alone(batch, 1));
  check(whole, first + second, "the auxiliary loss of two samples, and the sum of their separate ones");
  check(auxiliary_of(two, batch), whole,
        "the auxiliary loss of the same samples after other micro-batches, and before");
  const at::Tensor targets = batch.targets.clone();
  targets.select(0, 1).fill_(ignored);
  check(auxiliary_of(two, with_targets(batch, targets)), first,
        "the auxiliary loss of two samples with all targets of the second set to -100, and that of the first alone");
}

void logits_say_the_loss(Subject& subject) {
  const auto model = make_small(subject);
  const std::int64_t length = usable_length(*model, 6), rows = 2 * length;
  const BuiltModel built(*model, {2, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = draw_batch(*model, 2, length, 6);
  batch.training = false;
  const MicroBatch none = with_targets(batch, at::full_like(batch.targets, ignored));
  const auto logits_of = [&](const at::Tensor& asked) {
    MicroBatch asking = none;
    asking.asked_rows = asked;
    const at::Tensor logits = built.pass(asking).last.logits;
    if (!logits.defined())
      throw Skip("its last layer gives no logits where the batch has asked_rows, so `strata sample` refuses it");
    require(logits.scalar_type() == at::kFloat && logits.sizes() == at::IntArrayRef{asked.size(0), model->vocabulary()},
            "the logits of " + std::to_string(asked.size(0)) + " asked rows are " + text_of(logits) +
                "; they must be fp32 [asked rows, vocabulary]");
    return logits;
  };
  const at::Tensor backwards = at::arange(rows - 1, -1, -1, at::kLong);
  const at::Tensor all = logits_of(backwards).log_softmax(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const at::Tensor targets = none.targets.clone();
    const std::int64_t target = batch.targets.view({-1})[row].item<std::int64_t>();
    targets.view({-1})[row] = target;
    const double loss = built.loss(with_targets(batch, targets));
    const std::string rule = "row r of the logits must be of row asked_rows[r] (sample x length + token), and unscaled";
    close(-all[rows - 1 - row][target].item<double>(), loss, loss,
          "the loss of row " + std::to_string(row) + " by its logits among those of all rows, asked for backwards",
          rule);
    const at::Tensor alone = logits_of(at::full({1}, row, at::kLong)).log_softmax(1);
    close(-alone[0][target].item<double>(), loss, loss,
          "the loss of row " + std::to_string(row) + " by its logits alone", rule);
  }
}

void sees_no_future(Subject& subject) {
  const auto model = make_small(subject);
  const std::int64_t length = usable_length(*model, 10), seen = length / 2;
  if (length < 4) throw Skip("the model's maximum sequence length is " + std::to_string(length) + " tokens");
  if (model->vocabulary() < 2) throw Skip("the model's vocabulary is one token");
  const BuiltModel built(*model, {1, length, at::kFloat}, at::kFloat, 5);
  MicroBatch batch = draw_batch(*model, 1, length, 6);
  batch.training = false;
  const auto changed = [&](std::int64_t place) {
    MicroBatch other = batch;
    other.tokens = batch.tokens.clone();
    other.tokens.select(1, place).add_(1).remainder_(model->vocabulary());
    return other;
  };
  const at::Tensor targets = batch.targets.clone();  // of the first tokens only
  targets.narrow(1, seen, length - seen).fill_(ignored);
  const double loss = built.loss(with_targets(batch, targets));
  for (std::int64_t place = seen; place < length; ++place) {
    const double other = built.loss(with_targets(changed(place), targets));
    require(std::abs(other - loss) <= 1e-5 * loss,
            "the loss of tokens 0 to " + std::to_string(seen - 1) + " is " + text(loss) + ", but with another token " +
                std::to_string(place) + " it is " + text(other) +
                "; a token must not see later tokens, because token t + 1 is the target of token t");
  }
  require(std::abs(built.loss(with_targets(changed(seen - 1), targets)) - loss) > 1e-5 * loss,
          "the loss of token " + std::to_string(seen - 1) + " does not depend on that token");
}

}  // namespace strata::conformance::model_checks
