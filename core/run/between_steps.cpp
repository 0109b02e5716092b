// What an engine does between steps: validation, checkpoints, export.
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/weights.hpp"
#include "run/implementation.hpp"

namespace strata {

double Engine::Implementation::evaluate(const Where& where) {
  check_between_steps("evaluate", where);
  if (config().validation.data.path.empty())
    refuse("evaluate", where, "validation.path is not given; give it, or pass the micro-batches to evaluate");
  if (!validation_) validation_.emplace(program_.config, session_, plugins_);
  return part([&] { return validation_->run([](std::int64_t, std::int64_t) {}).value().loss; });
}

double Engine::Implementation::evaluate(const std::vector<Batch>& micro_batches, const Where& where) {
  check_between_steps("evaluate", where);
  const auto given = static_cast<std::int64_t>(micro_batches.size());
  if (given < 1 || given > config().train.accumulation)
    refuse("evaluate", where,
           std::to_string(given) + " micro-batches were given; 1 to train.accumulation = " +
               std::to_string(config().train.accumulation) + " are evaluated in one call");
  std::vector<MicroBatch> batches;
  std::int64_t valid_tokens = 0;
  for (const Batch& batch : micro_batches) {
    const data::TokenBatch tokens = checked(batch, "evaluate", where);
    batches.push_back(run_.place(steps_done_, static_cast<std::int64_t>(batches.size()), tokens));
    batches.back().training = false;
    valid_tokens += tokens.valid_tokens;
  }
  return part([&] {
    const auto total_tokens = static_cast<double>(run_.count_over_run(valid_tokens));
    const at::Tensor loss_sum =
        at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(session_.store().device()));
    session_.evaluate(batches, loss_sum);
    session_.stage().world->all_reduce(loss_sum, ReduceOperation::Sum).wait();
    return loss_sum.item().toDouble() / total_tokens;
  });
}

std::string Engine::Implementation::save_checkpoint(const Where& where) {
  check_between_steps("save_checkpoint", where);
  if (config().checkpoint.path.empty())
    refuse("save_checkpoint", where, "checkpoint.path is not given, and checkpoints are saved in the folder it names");
  check_start("save_checkpoint", where);
  started_ = true;
  if (!saver_)
    saver_.emplace(program_.config, session_, plugins_, checkpoints_,
                   runtime::CheckpointContent{folder_ ? folder_->config_text() : "",
                                              loader_ ? loader_->samples().count() : std::int64_t{0}});
  return saver_->save(steps_done_, run_.updates());
}

bool Engine::Implementation::resume(const std::string& from, const Where& where) {
  check_usable("resume", where);
  if (started_)
    refuse("resume", where, "steps were made or a checkpoint was loaded already; a run resumes before its first step");
  if (from == "latest" && config().checkpoint.path.empty())
    refuse("resume", where,
           "checkpoint.path is not given, so there is no latest checkpoint; give it, or pass a folder");
  runtime::check_start(program_.config, from);
  const std::int64_t samples = loader_ ? loader_->samples().count() : 0;
  const std::optional<runtime::Resumed> resumed =
      part([&] { return runtime::resume(program_.config, from, session_, plugins_, samples); });
  if (!resumed) return false;
  started_ = true;
  steps_done_ = resumed->step;
  run_.set_updates(resumed->updates);
  return true;
}

// A fresh run would write among the checkpoints of an earlier one.
void Engine::Implementation::check_start(const char* call, const Where& where) const {
  if (started_ || config().checkpoint.path.empty()) return;
  const std::vector<std::int64_t> steps = checkpoints_.steps();
  if (steps.empty()) return;
  refuse(call, where,
         "checkpoint.path: " + config().checkpoint.path + " holds checkpoints of an earlier run, up to step-" +
             std::to_string(steps.back()) + "; go on from them with engine.resume(), or name another folder");
}

void Engine::Implementation::export_weights(const std::string& folder, const Where& where) {
  check_between_steps("export_weights", where);
  if (place_.rank == 0) checkpoint::check_export_folder(folder);
  runtime::export_weights(session_, *plugins_.model, folder);
}

}  // namespace strata
