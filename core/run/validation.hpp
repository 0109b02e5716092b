// The mean loss of a session's weights over the config's validation file.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "run/step_record.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// The validation of one run, as often as asked for. The file's samples are cut among ranks and micro-batches as
// training's are; the last ones are filled up with samples whose targets do not count, so any number of samples gives
// their own mean at any layout.
class Validation {
 public:
  // Called on every rank now and then with how many samples are done; may be empty.
  using Progress = std::function<void(std::int64_t done, std::int64_t samples)>;

  // Opens the file that the config names, and looks in it for tokens that the model does not know. All three must
  // outlive it. Throws UserError. [collective]
  Validation(const config::RunConfig& config, Session& session, const Model& model);

  // [collective] over the run; blocks the host. Training goes on afterwards as if it had not been. Gives up, with no
  // result, when `stop_requested` (may be empty) returns other than 0 on any rank.
  std::optional<report::ValidationResult> run(const Progress& progress, const std::function<int()>& stop_requested);

 private:
  bool stopping(const std::function<int()>& stop_requested);
  std::int64_t read(std::int64_t first, std::vector<MicroBatch>& batches) const;

  const config::RunConfig& config_;
  Session& session_;
  data::Loader loader_;
  std::int64_t samples_;
};

}  // namespace strata::runtime
