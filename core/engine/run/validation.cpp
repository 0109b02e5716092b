#include "run/validation.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <utility>

#include "run/run.hpp"
#include "stage/seconds_since.hpp"

namespace strata::run {

namespace {

std::int64_t divide_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

}  // namespace

Validation::Validation(const config::RunConfig& config, step::Session& session, const stage::PluginSet& plugins,
                       data::Loader data)
    : config_(config), session_(session), loader_(std::move(data)), samples_(loader_.samples().count()) {
  if (config.validation.samples > 0) samples_ = std::min(samples_, config.validation.samples);
  check_document_end(config.validation.data, "validation", plugins.model->vocabulary());
  check_tokens(session, loader_.source(), plugins.model->vocabulary());
}

std::optional<report::ValidationResult> Validation::run(const Progress& progress,
                                                        const std::function<bool()>& stopping) {
  const auto begin = std::chrono::steady_clock::now();
  const stage::ForwardSums sums = session_.zero_sums();
  std::int64_t valid_tokens = 0;
  for (std::int64_t first = 0; first < samples_; first += config_.train.global_batch) {
    if (stopping()) return std::nullopt;
    std::vector<MicroBatch> batches;
    valid_tokens += read(first, batches);
    session_.evaluate(batches, sums);
    if (progress) progress(std::min(first + config_.train.global_batch, samples_), samples_);
  }
  report::ValidationResult result{session_.figures(sums, valid_tokens)};
  result.samples = samples_;
  result.seconds = stage::seconds_since(begin);
  return result;
}

// This rank's micro-batches of the global batch that begins with sample `first`, as many as any rank needs. Returns how
// many of their targets count.
std::int64_t Validation::read(std::int64_t first, std::vector<MicroBatch>& batches) const {
  const config::TrainConfig& train = config_.train;
  const std::int64_t left = std::min(train.global_batch, samples_ - first);
  const data::BatchPlan& plan = loader_.plan();
  const at::Device device = session_.store().device();
  std::int64_t valid = 0;
  for (std::int64_t m = 0; m < divide_up(left, plan.ranks * plan.micro_batch); ++m) {
    const data::TokenBatch batch = loader_.micro_batch(first / train.global_batch, m);
    const std::int64_t sample = first + plan.place_in_batch(m);
    const std::int64_t real = std::clamp<std::int64_t>(samples_ - sample, 0, train.micro_batch);
    batch.targets.narrow(0, real, train.micro_batch - real).fill_(data::ignored_target);
    valid += batch.targets.ne(data::ignored_target).sum().item<std::int64_t>();
    batches.push_back({batch.tokens.to(device), batch.targets.to(device), sample, /*training=*/false});
  }
  return valid;
}

}  // namespace strata::run
