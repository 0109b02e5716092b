#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "checkpoint/resume.hpp"
#include "config/run_config.hpp"
#include "group/group_provider.hpp"
#include "plugin_host/registry.hpp"
#include "run/step_record.hpp"
#include "step/plugin_set.hpp"

namespace strata::runtime {

// What a person asks for beside the config.
struct TrainRequest {
  ResumeFrom resume;                    // see checkpoint/resume.hpp
  std::function<void()> before_step;    // called on every rank, not timed; may block, may be empty
  std::function<int()> stop_requested;  // asked before each step: the signal to stop by, or 0; may be empty
  // One JSON object a step; empty: none. A resumed run appends to it: a step that was made twice stands twice, and the
  // later line is the one that counts.
  std::string metrics_file;
  bool digests = false;           // of every step's gradient, in metrics_file; see step/gradient_digest.hpp
  std::string summary_file;       // one JSON object at the end; empty: none
  bool quiet = false;             // no progress
  bool terminal = false;          // progress as one line that is rewritten
  std::int64_t warmup_steps = 2;  // left out of the summary's timings
  std::function<void(const report::StepRecord&)> after_step;  // called on every rank; may be empty
};

// Makes the groups' source once the plugins are there; asked for on every rank.
using MakeGroups = std::function<std::unique_ptr<GroupProvider>(PluginSet& plugins)>;

// Trains as the config says, or until it is asked to stop, saves checkpoints on the way and returns the summary, whose
// ranks are filled on rank 0. [collective] over the run. Rank 0 writes the files and `out`.
report::RunSummary train(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const RankPlace& place,
                         const MakeGroups& make_groups, const TrainRequest& request, std::ostream& out);

}  // namespace strata::runtime
