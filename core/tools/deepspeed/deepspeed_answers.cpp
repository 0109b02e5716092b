// The "auto" values of a ds_config that depend on the model or the free memory.
#include <strata/error.hpp>

#include <algorithm>

#include "plan/memory_budget.hpp"
#include "plan/model_facts.hpp"
#include "text/size.hpp"
#include "tools/deepspeed/deepspeed.hpp"

namespace strata::deepspeed {

namespace {

// Ranks that share the memory this process measures. 0: other processes resolve the same config and would measure
// other figures.
int ranks_of(const config::World& world) {
  return world.starts_ranks || world.size == 1 ? static_cast<int>(world.size) : 0;
}

// The largest divisor of the batch that "auto" is with which no rank needs more than its budget: training is the same
// with any.
void answer_micro_batch(resolve::DialectAnswers& answers, std::int64_t batch, const config::RunConfig& run,
                        plugins::PluginRegistry& registry, int local_ranks) {
  if (local_ranks == 0 && run.memory_budget == 0) {
    answers.micro_batch = batch;
    answers.micro_batch_origin =
        "all of them: ranks started by torchrun, mpirun or srun would measure different amounts of free memory; set "
        "memory_budget=SIZE for the largest part that fits";
    return;
  }
  const plan::MemoryBudget budget = plan::memory_budget(run, run.memory_budget, registry, std::max(local_ranks, 1));
  std::string tried;
  std::int64_t bytes = 0;
  for (std::int64_t samples = batch; samples > 0; --samples) {
    if (batch % samples != 0) continue;
    config::RunConfig candidate = run;
    candidate.train.micro_batch = samples;
    candidate.train.accumulation = run.train.accumulation * (batch / samples);
    bytes = plan::bytes_needed(candidate, registry);
    tried += (tried.empty() ? "" : ", ") + std::to_string(samples) + (tried.empty() ? " take " : ": ") +
             text::format_bytes(bytes);
    if (bytes > budget.bytes) continue;
    answers.micro_batch = samples;
    answers.micro_batch_origin = "the largest divisor that fits into " + text::format_bytes(budget.bytes) +
                                 " per rank (" + budget.origin + "): " + tried;
    return;
  }
  throw UserError(
      "a micro-batch of one sample needs {} per rank, and {} are available ({}); use more ranks, a higher stage, "
      "activations.checkpoint=all, a shorter model.seq_len, or memory_budget=SIZE",
      text::format_bytes(bytes), text::format_bytes(budget.bytes), budget.origin);
}

}  // namespace

bool DeepSpeed::answer(const resolve::Translation& translation, const config::RunConfig& run,
                       const config::World& world, plugins::PluginRegistry& registry,
                       resolve::DialectAnswers& answers) const {
  if (translation.asks_hidden_size) {
    answers.hidden_size = plan::hidden_size(run, registry);
    return true;
  }
  if (translation.automatic_batch == 0 || answers.micro_batch) return false;
  try {
    answer_micro_batch(answers, translation.automatic_batch, run, registry, ranks_of(world));
  } catch (const UserError& error) {
    throw UserError(translation.automatic_batch_place, "batch size \"auto\": {}", error.what());
  }
  return true;
}

}  // namespace strata::deepspeed
