// Mean loss of a session's weights over the config's validation file.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "report/step_record.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::run {

// A run's validation, repeatable. The file's samples are distributed over ranks and micro-batches as in
// training. The last batch is padded with samples whose targets do not count, so the mean does not depend on the
// layout.
class Validation {
 public:
  // Progress function, called on every rank now and then with the number of samples done; may be empty.
  using Progress = std::function<void(std::int64_t done, std::int64_t samples)>;

  // Takes the config's validation file and checks its tokens against the model's vocabulary. The other arguments must
  // outlive it. Throws UserError. [collective]
  Validation(const config::RunConfig& config, step::Session& session, const stage::PluginSet& plugins,
             data::Loader data);

  // Runs the validation, without effect on the training. Empty when `stopping`, which all ranks call together with
  // equal results, returned true. Blocks the host. [collective] over the run
  std::optional<report::ValidationResult> run(const Progress& progress, const std::function<bool()>& stopping);

 private:
  std::int64_t read(std::int64_t first, std::vector<MicroBatch>& batches) const;

  const config::RunConfig& config_;
  step::Session& session_;
  data::Loader loader_;
  std::int64_t samples_;
};

}  // namespace strata::run
