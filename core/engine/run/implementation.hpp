// Implementation of <strata/engine.hpp>.
#pragma once
#include <strata/engine.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/machine_error.hpp"
#include "run/run.hpp"
#include "run/run_report.hpp"
#include "step/step_in_parts.hpp"

namespace strata {

// Resolves the config of a program, with its own plugins and model; if `model` is null, the config names one. `settle`
// then chooses open values, by plans and steps with the model before the run's own. Throws UserError.
resolve::ResolvedRun read_program_config(std::unique_ptr<Model> model, const std::string& config_file,
                                         std::vector<std::string> settings, std::vector<ProgramPlugin> plugins,
                                         const config::World& world,
                                         const std::function<void(resolve::ResolvedRun&)>& settle = {});

// Throws "FILE:LINE: engine.CALL: text".
[[noreturn]] void refuse(const char* call, const Engine::Where& where, const std::string& text);

// State of an engine, and code shared by its calls.
class Engine::Implementation {
 public:
  // Opens the run. [collective]
  Implementation(resolve::ResolvedRun resolved_run, const stage::RankNumbers& place,
                 const stage::MakeGroups& make_groups);

  const config::RunConfig& config() const { return resolved.config; }
  // Throws the UserError of an illegal call.
  void check_usable(const char* call, const Where& where) const;
  void check_between_steps(const char* call, const Where& where) const;
  void check_fresh(const char* call, const Where& where) const;
  // Opens the report before the first step. Throws the UserError of figures of an earlier run, unless the program
  // called resume. [collective]
  void begin_report(const char* call, const Where& where);
  // Reports a complete step, and writes the config's export after step train.steps. [collective]
  StepResult conclude(const report::StepRecord& record);
  void write_export();
  data::TokenBatch checked(const Batch& batch, const char* call, const Where& where) const;
  // Runs work that cannot be resumed after an error, e.g. a part of a step.
  template <typename Work>
  decltype(auto) part(Work&& work) {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      broken = true;
      run.stop();  // also if the program catches the error and continues: pending work is never waited for
      plugins::rethrow_to_program();
    }
  }

  resolve::ResolvedRun resolved;
  run::RunReport report;
  run::Run run;
  std::optional<step::StepInParts> parts;  // empty if a step cannot be cut into parts
  std::uint64_t identity;
  bool started = false;                         // true: a step was begun, or a checkpoint was loaded
  bool resumes = false;                         // true: the program called resume
  bool broken = false;                          // true: a call failed in the middle of a step
  std::int64_t forwards = 0;                    // number of forwards since the engine was made
  std::int64_t valid_tokens = 0;                // this rank's valid tokens of the current step
  std::chrono::steady_clock::time_point begin;  // begin of the current step
};

}  // namespace strata
