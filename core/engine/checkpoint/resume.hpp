// Resuming from a checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/training_checkpoint.hpp"
#include "config/run_config.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::checkpoint {

// Returns why a fresh run may not write to the config's checkpoint.path: it holds checkpoints of an earlier run, which
// `resume` (an option, a call) would resume. Empty: it holds none. [any rank]
std::string earlier_checkpoints(const config::RunConfig& config, const std::string& resume);

// Checks a start without loading. `from` is the checkpoint to resume: "latest" in the config's checkpoint.path, a
// folder of checkpoints (its latest), or one checkpoint; empty for a fresh run. Throws UserError when a fresh run would
// write among the checkpoints of an earlier one, when there is nothing to resume from, or when the checkpoint belongs
// to another run: other data, another seed, batch or number of steps already made. [any rank]
void check_start(const config::RunConfig& config, const std::optional<std::string>& from);

struct Resumed {
  std::string folder;
  std::int64_t step = 0;  // number of the next step
  std::int64_t updates = 0;
  std::int64_t optimizer_updates = 0;
};

// Verifies the checkpoint, then loads weights, optimizer state and plugins' state into the session. If it was saved on
// other ranks or stages, each rank reads the ranges it owns now; plugins' state is then loaded if all ranks had saved
// equal values. A damaged checkpoint is skipped with a warning for the newest whole one before it, and one with values
// that are not finite for the newest finite one, unless `from` named it. Empty for "latest" without any checkpoint.
// [collective] over the run; blocks. Throws, the same on all ranks: UserError when it is damaged and named or the last,
// when none is finite, when the model, the optimizer's state or a plugin's state does not fit; EnvironmentError when a
// disk fails.
std::optional<Resumed> resume(const config::RunConfig& config, const std::string& from, step::Session& session,
                              const stage::PluginSet& plugins, const RunData& data);

}  // namespace strata::checkpoint
