// Measures the instructions and the buffer transfers of a run in a few steps that have no other effect.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/predicted_step.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::plan {

// Measured times of a stage's instructions, and speed of its buffers.
struct StageCosts {
  InstructionCosts costs;
  HomeSpeed speed;
};

// Plugins, groups and session of a separate run, which ends with the object. Tokens are random.
class Rehearsal {
 public:
  // Makes a warm-up step and a few more. `config` has no open option. [collective] over the run
  Rehearsal(const config::RunConfig& config, plugins::PluginRegistry& registry, const stage::RankNumbers& place,
            const stage::MakeGroups& make_groups);

  const InstructionCosts& costs() const { return costs_; }
  double step_s() const { return step_s_; }  // median of this rank
  // Returns this rank's speed for buffers that are away from the device, while all ranks move theirs; infinite if none
  // move.
  const HomeSpeed& speed() const { return speed_; }
  // Returns the costs of the first rank of each pipeline stage; with one stage, this rank's.
  const std::vector<StageCosts>& stages() const { return stages_; }

  // Returns the maximum or minimum over all ranks, element by element. [collective] over the run
  std::vector<std::int64_t> most(const std::vector<std::int64_t>& mine);
  std::vector<std::int64_t> least(const std::vector<std::int64_t>& mine);

 private:
  void make_steps(const config::RunConfig& config);
  void measure_speed(std::int64_t read_ahead);
  void tell_stages(int stages);

  stage::PluginSet plugins_;
  std::unique_ptr<group::GroupProvider> groups_;
  std::unique_ptr<step::Session> session_;
  InstructionCosts costs_;
  double step_s_ = 0.0;
  HomeSpeed speed_;
  std::vector<StageCosts> stages_;
};

}  // namespace strata::plan
