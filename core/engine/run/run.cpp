#include "run/run.hpp"

#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "checkpoint/agreement.hpp"
#include "group/numbers.hpp"
#include "group/stop_request.hpp"
#include "plugins/plugin_call.hpp"
#include "stage/seconds_since.hpp"
#include "text/first_of.hpp"

namespace strata::run {

namespace {

data::BatchPlan batch_plan(const config::RunConfig& config, int rank) {
  return {config.train.micro_batch, config.parallel.size(Axis::Data), config.train.accumulation,
          place_of(config.parallel.mesh, rank).at(Axis::Data)};
}

}  // namespace

data::Loader open_data(const config::RunConfig& config, const config::DataConfig& data,
                       const stage::NamedPlugin<DataSource>& plugin, int rank) {
  const std::int64_t steps = config.train.steps, batch = config.train.global_batch;
  SampleRequest request{config.model.seq_len, 0, static_cast<std::uint64_t>(config.train.seed)};
  request.samples = steps > INT64_MAX / batch ? INT64_MAX : steps * batch;
  data::TokenSource source(*plugin.plugin, plugin.name, data.path);
  return {data::OrderedSamples(std::move(source), data.order, request, data.document_end), batch_plan(config, rank)};
}

void check_document_end(const config::DataConfig& data, const std::string& section, std::int64_t vocabulary) {
  if (!data.document_end || *data.document_end < vocabulary) return;
  throw UserError(
      "{}.document_end is {}, and the model's token ids are 0 to {}; give the id that ends the file's documents, or "
      "choose a model with a larger vocabulary",
      section, *data.document_end, vocabulary - 1);
}

void check_tokens(step::Session& session, const data::TokenSource& source, std::int64_t vocabulary) {
  constexpr std::int64_t round_tokens = std::int64_t{16} << 20;
  Group& world = session.stage().groups.world();
  std::int64_t first = world.rank() * round_tokens;
  checkpoint::work_in_rounds(world, session.store().device(), [&] {
    const std::int64_t end = std::min(first + round_tokens, source.token_count());
    if (first < end) source.check_vocabulary(vocabulary, first, end);
    first += world.size() * round_tokens;
    return first < source.token_count();
  }).check();
}

report::StepRecord Run::step() {
  const auto begin = std::chrono::steady_clock::now();
  if (!next_ || next_->step != steps_done_) next_ = input_of(steps_done_, read(steps_done_));
  step::StepInput input = scalars(steps_done_);  // as the step before left them
  input.batches = std::move(next_->batches);
  input.valid_tokens = next_->valid_tokens;
  next_.reset();
  if (another_follows()) next_ = input_of(steps_done_ + 1, read(steps_done_ + 1));
  const double data_s = stage::seconds_since(begin);
  report::StepRecord record = make(input, next_ ? &*next_ : nullptr);
  record.data_s = data_s;
  record.step_s = stage::seconds_since(begin);
  return record;
}

report::StepRecord Run::step(const std::vector<data::TokenBatch>& batches) {
  session_.executor().forget_ahead();  // which was made of other micro-batches
  return make(input_of(steps_done_, batches), nullptr);
}

report::StepRecord Run::make(const step::StepInput& input, const step::StepInput* next) {
  const auto begin = std::chrono::steady_clock::now();
  const step::StepOutcome outcome = session_.step(input, next);
  return conclude(input, outcome, stage::seconds_since(begin));
}

bool Run::another_follows() const {
  const std::int64_t done = steps_done_ + 1;
  return session_.looks_ahead() && done < config_.train.steps &&
         !(validation_ && is_due(done, config_.validation.every));
}

report::StepRecord Run::conclude(const step::StepInput& input, const step::StepOutcome& outcome, double step_s) {
  const std::string what = format("the loss of step {}", input.step + 1);
  const bool finite = std::isfinite(outcome.loss);
  not_finite_ = finite ? "" : what;
  if (!finite) saver_.take_loss(outcome.loss, what);
  report::StepRecord record;
  try {
    record = record_of(input, outcome, step_s);
  } catch (const EnvironmentError&) {  // the run ends here
    saver_.mark_if_disproven();
    throw;
  }
  if (finite) saver_.take_loss(outcome.loss, what);  // may remove a checkpoint: the step counts even if that fails
  return record;
}

report::StepRecord Run::record_of(const step::StepInput& input, const step::StepOutcome& outcome, double step_s) {
  report::StepRecord record;
  record.step = input.step;
  record.learning_rate = input.learning_rate;
  record.outcome = outcome;
  stopped_by_ = outcome.stopped_by;
  check_updates_within_step(input, outcome);
  record.applied = judge(record);
  ++steps_done_;
  if (record.applied) {
    ++updates_;
    optimizer_updates_ += std::max(session_.stage().layers.updates_within_step(), 1);
  }
  record.step_s = step_s;
  record.tokens_per_s = static_cast<double>(config_.train.global_batch * config_.model.seq_len) / step_s;
  return record;
}

// Checks after the step what updates within it could not know. All ranks know it from the step's one all-reduce, and
// the run ends before anything is saved.
void Run::check_updates_within_step(const step::StepInput& input, const step::StepOutcome& outcome) const {
  if (session_.stage().layers.updates_within_step() == 0) return;
  const std::string& scheduler = session_.scheduler();
  const std::string step = format("step {}: ", input.step + 1);
  if (outcome.valid_tokens != input.tokens)
    throw UserError(
        "{}{} of {} targets are ignored, and {} updates within the step: each update uses the mean over its tokens, so "
        "every token must count; train on data without ignored targets, or choose another scheduler",
        step, input.tokens - outcome.valid_tokens, input.tokens, scheduler);
  if (!outcome.finite)
    throw EnvironmentError(
        "{}the gradient is not finite, and {} has updated weights by it within the step; resume from the last "
        "checkpoint with a lower learning rate, or choose another scheduler",
        step, scheduler);
}

// Whether the update was made. Which gradients were not finite is asked for only when some were not: it takes a
// collective of its own.
bool Run::judge(report::StepRecord& record) {
  const step::StepOutcome& outcome = record.outcome;
  if (!outcome.finite) record.non_finite = session_.executor().non_finite_parameters();
  const std::string found =
      "gradients that are not finite, from the loss backwards: " + text::first_of(record.non_finite, 4);
  const stage::NamedPlugin<PrecisionPolicy>& precision = session_.stage().plugins.precision;
  const Verdict verdict = plugins::plugin_call(precision.name, "judge()", session_.stage().place.rank, [&] {
    return precision->judge({record.step + 1, outcome.gradient_norm, outcome.finite});
  });
  if (verdict == Verdict::Stop)
    throw EnvironmentError("step {}: {} ends the run: {}; {}", record.step + 1, precision.name,
                           precision->stop_reason(), found);
  if (verdict == Verdict::Skip && outcome.finite)
    throw Bug("{} skips a step whose gradient is finite; the update is already made at that point", precision.name);
  if (!outcome.finite && session_.stage().place.rank == 0)
    spdlog::warn("step {} is skipped: {}", record.step + 1, found);
  return outcome.finite && verdict == Verdict::Apply;
}

std::vector<data::TokenBatch> Run::read(std::int64_t step) const {
  strata_check(has_data(), "a run without data reads none");
  std::vector<data::TokenBatch> batches;
  for (std::int64_t micro_batch = 0; micro_batch < config_.train.accumulation; ++micro_batch)
    batches.push_back(data_->micro_batch(step, micro_batch));
  return batches;
}

step::StepInput Run::input_of(std::int64_t step, const std::vector<data::TokenBatch>& batches) const {
  step::StepInput input = scalars(step);
  std::int64_t valid = 0;
  for (const data::TokenBatch& batch : batches) {
    input.batches.push_back(on_device(step, static_cast<std::int64_t>(input.batches.size()), batch));
    valid += batch.valid_tokens;
  }
  input.valid_tokens = session_.counted(valid);
  return input;
}

step::StepInput Run::scalars(std::int64_t step) const {
  step::StepInput input;
  input.step = step;
  input.seed = static_cast<std::uint64_t>(config_.train.seed);
  input.tokens = config_.train.global_batch * config_.model.seq_len;
  input.stop_requested = stop_requested_;
  input.clip = config_.train.clip;
  input.updates = optimizer_updates_;
  input.learning_rate = session_.learning_rate().rate(updates_);
  input.momentum = session_.learning_rate().momentum(updates_);
  return input;
}

MicroBatch Run::on_device(std::int64_t step, std::int64_t micro_batch, const data::TokenBatch& batch) const {
  const at::Device device = session_.store().device();
  return {batch.tokens.to(device), batch.targets.to(device),
          step * config_.train.global_batch + batch_plan(config_, place_.rank).place_in_batch(micro_batch)};
}

int Run::agree_to_stop() {
  if (!stop_requested_) return 0;
  const std::vector<std::int64_t> counts = group::reduce_numbers(
      session_.stage().groups.world(), session_.store().device(), group::stop_counts(stop_requested_()));
  return stopped_by_ = group::counted_signal(counts.data());
}

}  // namespace strata::run
