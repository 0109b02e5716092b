#include "run/validation.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "group/numbers.hpp"
#include "run/run.hpp"
#include "step/seconds_since.hpp"

namespace strata::runtime {

namespace {

constexpr std::int64_t ignored_target = -100;  // see MicroBatch::targets

std::int64_t divide_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

}  // namespace

Validation::Validation(const config::RunConfig& config, Session& session, const PluginSet& plugins)
    : config_(config),
      session_(session),
      loader_(open_data(config, config.validation.data, plugins.validation)),
      samples_(loader_.samples().count()) {
  if (config.validation.samples > 0) samples_ = std::min(samples_, config.validation.samples);
  check_tokens(session, loader_.source(), plugins.model->vocabulary());
}

// Whether any rank is to stop: all of them know it before the same samples.
bool Validation::stopping(const std::function<int()>& stop_requested) {
  if (!stop_requested) return false;
  return reduce_numbers(*session_.stage().world, session_.store().device(), {stop_requested() != 0}).front() != 0;
}

std::optional<report::ValidationResult> Validation::run(const Progress& progress,
                                                        const std::function<int()>& stop_requested) {
  const auto begin = std::chrono::steady_clock::now();
  const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble).device(session_.store().device());
  const at::Tensor totals = at::zeros({2}, doubles);  // loss sum, tokens that count
  std::int64_t tokens = 0;
  for (std::int64_t first = 0; first < samples_; first += config_.train.global_batch) {
    if (stopping(stop_requested)) return std::nullopt;
    std::vector<MicroBatch> batches;
    tokens += read(first, batches);
    session_.evaluate(batches, totals.narrow(0, 0, 1));
    if (progress) progress(std::min(first + config_.train.global_batch, samples_), samples_);
  }
  // Every stage reads the same samples: the first one's count is that of them all.
  const MeshPlace place = session_.place();
  if (place.pipeline == 0 && place.tensor == 0) totals.select(0, 1).fill_(static_cast<double>(tokens));
  session_.stage().world->all_reduce(totals, ReduceOperation::Sum).wait();
  const at::Tensor host = totals.cpu();
  report::ValidationResult result;
  result.samples = samples_;
  result.tokens = static_cast<std::int64_t>(host.const_data_ptr<double>()[1]);
  result.loss = host.const_data_ptr<double>()[0] / host.const_data_ptr<double>()[1];
  result.seconds = seconds_since(begin);
  return result;
}

// This rank's micro-batches of the global batch that begins with sample `first`, as many as any rank needs. Returns how
// many of their targets count.
std::int64_t Validation::read(std::int64_t first, std::vector<MicroBatch>& batches) const {
  const config::TrainConfig& train = config_.train;
  const std::int64_t left = std::min(train.global_batch, samples_ - first);
  const std::int64_t data = session_.place().data;
  const at::Device device = session_.store().device();
  std::int64_t valid = 0;
  for (std::int64_t m = 0; m < divide_up(left, train.micro_batch * config_.parallel.data); ++m) {
    const data::TokenBatch batch = loader_.micro_batch(first / train.global_batch, m, data);
    const std::int64_t sample = first + (m * config_.parallel.data + data) * train.micro_batch;
    const std::int64_t real = std::clamp<std::int64_t>(samples_ - sample, 0, train.micro_batch);
    batch.targets.narrow(0, real, train.micro_batch - real).fill_(ignored_target);
    valid += batch.targets.ne(ignored_target).sum().item<std::int64_t>();
    batches.push_back({batch.tokens.to(device), batch.targets.to(device), sample, /*training=*/false});
  }
  return valid;
}

}  // namespace strata::runtime
