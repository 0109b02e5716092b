#include "step/session.hpp"

#include <strata/error.hpp>

#include "stage/answers.hpp"

namespace strata::step {

Session::Session(const config::RunConfig& config, stage::PluginSet& plugins, group::GroupProvider& groups,
                 const stage::RankNumbers& numbers, const stage::ModelSource& source, bool dry_run,
                 stage::Purpose purpose, const std::vector<stage::LayerTime>& measured)
    : learning_rate_(plugins.learning_rate, config),
      stage_({config, plugins, groups, stage::RankPlace(numbers, config, plugins), source, purpose, measured, dry_run}),
      executor_(stage_) {
  if (purpose == stage::Purpose::Training) learning_rate_.check_momentum(plugins.optimizer);
}

StepOutcome Session::step(const StepInput& input, const StepInput* next) {
  strata_check(!program().empty(), "a session made for evaluation cannot train");
  compute_with(Weights::Trained);
  return executor_.run(program(), input, next);
}

void Session::make_pending_updates() {
  const program::Program& updates = stage_.programs.pending_updates();
  if (!updates.empty() && executor_.has_pending_update()) executor_.make_pending_updates(updates);
}

void Session::evaluate(const std::vector<MicroBatch>& batches, const stage::ForwardSums& sums) {
  make_pending_updates();
  compute_with(Weights::Evaluated);
  StepInput input;
  input.batches = batches;
  executor_.evaluate(stage_.programs.evaluation(static_cast<int>(batches.size())), input, sums);
}

stage::ForwardFigures Session::figures(const stage::ForwardSums& sums, std::int64_t valid_tokens) {
  sums.sums.select(0, stage::ForwardSums::valid_tokens).fill_(static_cast<double>(counted(valid_tokens)));
  stage_.groups.world().all_reduce(sums.sums, ReduceOperation::Sum).wait();
  if (sums.maxima.numel() > 0) stage_.groups.world().all_reduce(sums.maxima, ReduceOperation::Max).wait();
  return stage::ForwardFigures::of({sums.sums.cpu(), sums.maxima.cpu()}, stage_.layers.statistics());
}

config::Answers Session::answers() const {
  return stage::ask_features(stage_.plugins, stage_.place, stage_.layers, stage_.policy == config::StepPolicy::Local);
}

}  // namespace strata::step
