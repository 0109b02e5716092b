// The mean loss of a session's weights over the config's validation file.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "run/step_record.hpp"
#include "step/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// A run's validation, which may be run any number of times. The file's samples are cut among ranks and micro-batches as
// training's are. The last batch is padded with samples whose targets do not count, so the mean is the samples' own at
// any layout.
class Validation {
 public:
  // Called on every rank now and then with how many samples are done; may be empty.
  using Progress = std::function<void(std::int64_t done, std::int64_t samples)>;

  // `data` is the config's validation file, whose tokens are checked against the model's vocabulary. The others must
  // outlive it. Throws UserError. [collective]
  Validation(const config::RunConfig& config, Session& session, const PluginSet& plugins, data::Loader data);

  // Leaves no trace in the training. Returns nothing when `stopping`, which all ranks call together and which says the
  // same on all, returned true. Blocks the host. [collective] over the run
  std::optional<report::ValidationResult> run(const Progress& progress, const std::function<bool()>& stopping);

 private:
  std::int64_t read(std::int64_t first, std::vector<MicroBatch>& batches) const;

  const config::RunConfig& config_;
  Session& session_;
  data::Loader loader_;
  std::int64_t samples_;
};

}  // namespace strata::runtime
