#include <strata/format.hpp>

#include <algorithm>
#include <cmath>

#include "conformance/model/built_model.hpp"
#include "conformance/model/checks.hpp"

namespace strata::conformance {

Combined Combined::nothing(StatisticKind kind) {
  return {kind, kind == StatisticKind::Sum ? 0.0 : -INFINITY};
}

void Combined::add(double more) {
  value = kind == StatisticKind::Sum ? value + more : std::max(value, more);
}

}  // namespace strata::conformance

namespace strata::conformance::model_checks {

namespace {

// Returns the statistics of all samples but one, from those of each.
CombinedStatistics combined(const std::vector<CombinedStatistics>& samples, std::int64_t left_out) {
  CombinedStatistics all;
  for (std::int64_t sample = 0; sample < std::ssize(samples); ++sample)
    for (const auto& [name, one] : samples[static_cast<std::size_t>(sample)]) {
      Combined& sum = all.try_emplace(name, Combined::nothing(one.kind)).first->second;
      if (sample != left_out) sum.add(one.value);
    }
  return all;
}

void check_equal(const CombinedStatistics& found, const CombinedStatistics& wanted, const CombinedStatistics& scale,
                 const std::string& what) {
  require(found.size() == wanted.size(), what + ": they have other names");
  for (const auto& [name, one] : wanted) {
    const double value = found.at(name).value;
    require(value == one.value || std::abs(value - one.value) <= 3e-5 * std::abs(scale.at(name).value),
            format("statistic {} {}: {} and {}; it must be {} over the samples that have a target, the same in any "
                   "micro-batch",
                   name, what, value, one.value, one.kind == StatisticKind::Sum ? "a sum" : "a maximum"));
  }
}

}  // namespace

void statistics_combine(const ModelWorld& world) {
  const BuiltModel all(*world.model, world.shape, at::kFloat, 5),
      one(*world.model, {1, world.shape.sequence_length, at::kFloat}, at::kFloat, 5);
  const MicroBatch batch = world.batch();
  const CombinedStatistics whole = all.pass(batch).statistics;
  for (const auto& [name, statistic] : whole)
    require(std::isfinite(statistic.value), format("statistic {} is {}; it must be finite", name, statistic.value));
  MicroBatch evaluated = batch;
  evaluated.training = false;
  const CombinedStatistics scale = all.pass(evaluated).statistics;
  std::vector<CombinedStatistics> samples;
  for (std::int64_t sample = 0; sample < world.shape.micro_batch; ++sample)
    samples.push_back(one.pass(alone(evaluated, sample)).statistics);
  check_equal(scale, combined(samples, -1), scale, "of all samples, and of each combined");
  check_equal(all.pass(evaluated).statistics, scale, scale, "of the same samples after other micro-batches");
  const std::int64_t left_out = world.draws.between(0, world.shape.micro_batch - 1);
  const at::Tensor targets = batch.targets.clone();
  targets.select(0, left_out).fill_(ignored);
  check_equal(all.pass(with_targets(evaluated, targets)).statistics, combined(samples, left_out), scale,
              format("with all targets of sample {} set to -100, and of the other samples", left_out));
}

}  // namespace strata::conformance::model_checks
