// Going on from a checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/training_checkpoint.hpp"
#include "config/run_config.hpp"
#include "step/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Why a fresh run may not write to the config's checkpoint.path: it holds checkpoints of an earlier run, which `resume`
// (an option, a call) would go on from. Empty: it holds none. [any rank]
std::string earlier_checkpoints(const config::RunConfig& config, const std::string& resume);

// Checks what needs no loading. `from` is what a run goes on from: "latest" in the config's checkpoint.path, a folder
// of checkpoints (its latest), or one checkpoint; nothing for a fresh run. Throws UserError when a fresh run would
// write among the checkpoints of an earlier one, when there is nothing to resume from, or when the checkpoint is of
// another run: other data, another seed, batch or number of steps already made. [any rank]
void check_start(const config::RunConfig& config, const std::optional<std::string>& from);

struct Resumed {
  std::string folder;
  std::int64_t step = 0;  // the next one's number
  std::int64_t updates = 0;
  std::int64_t optimizer_updates = 0;
};

// Verifies the checkpoint, then loads weights, optimizer state and plugins' state into the session. Where it was saved
// on other ranks or stages, each rank reads the ranges it owns now; plugins' state is then taken over when all ranks
// had saved the same. A damaged checkpoint is passed over with a warning for the newest whole one before it, and one
// whose values are not finite for the newest finite one, unless `from` named it. Returns nothing when "latest" is asked
// for and no checkpoint is there yet. [collective] over the run; blocks. Throws, the same on all ranks: UserError when
// it is damaged and named or the last, when none is finite, when the model, the optimizer's state or a plugin's state
// does not suit; EnvironmentError when a disk fails.
std::optional<Resumed> resume(const config::RunConfig& config, const std::string& from, Session& session,
                              const PluginSet& plugins, const checkpoint::RunData& data);

}  // namespace strata::runtime
