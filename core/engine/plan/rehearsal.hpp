// A few steps of a run that change nothing: what its instructions take, and how fast its buffers move.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/predicted_step.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::plan {

// What a stage's instructions take, and how fast its buffers move.
struct StageCosts {
  InstructionCosts costs;
  HomeSpeed speed;
};

// The plugins, groups and session of a run of its own, which ends with the object. Tokens are random.
class Rehearsal {
 public:
  // Makes a step to warm up and a few more. `config` leaves nothing open. [collective] over the run
  Rehearsal(const config::RunConfig& config, plugins::PluginRegistry& registry, const stage::RankNumbers& place,
            const stage::MakeGroups& make_groups);

  const InstructionCosts& costs() const { return costs_; }
  double step_s() const { return step_s_; }  // the median, of this rank
  // This rank's speed beside the others', of what rests away from the device; nothing moves: infinite.
  const HomeSpeed& speed() const { return speed_; }
  // The same of the first rank of each of the run's pipeline stages. Of one stage: this rank's.
  const std::vector<StageCosts>& stages() const { return stages_; }

  // Element by element the most, or the least, of any rank. [collective] over the run
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
