// Simulation of a training step by the costs of its passes, for schedulers that search for an order.
#pragma once
#include <strata/scheduler.hpp>

#include <cstdint>
#include <vector>

namespace strata::toolbox {

// Every stage computes one action at a time; its input must have been computed by then (sending takes no time).
class StepByClock {
 public:
  // Starts at time 0. `stage_of_chunk`: as in Placement.
  StepByClock(const PipelineShape& shape, const std::vector<int>& stage_of_chunk);

  // Carries out the action that can begin first over all stages (of equals, on the first stage), until none can begin.
  // offer(stage, take) calls take(action) for each action that the stage may compute next; of actions that can begin at
  // the same time the first is taken. The offers for a stage may depend on the actions carried out for its own chunks.
  template <class Offer>
  void run(const Offer& offer) {
    for (int stage = 0; stage < shape_.stages; ++stage) look(stage, offer);
    while (carry_out_first()) {
      const int chunk = last_.chunk;
      look(stage_of(chunk), offer);
      if (last_.kind == ComputeKind::Forward && chunk + 1 < shape_.chunks()) look(stage_of(chunk + 1), offer);
      if (last_.kind == ComputeKind::BackwardInput && chunk > 0) look(stage_of(chunk - 1), offer);
    }
  }

  // Returns the number of micro-batches of the chunk that are done; they go in order. Split backwards only.
  int done(ComputeKind kind, int chunk) const { return done_[index(kind, chunk)]; }
  const std::vector<ComputeAction>& order(int stage) const { return orders_[static_cast<std::size_t>(stage)]; }
  // Returns the time of the step's end; INT64_MAX if it is incomplete.
  std::int64_t end() const;

 private:
  struct Candidate {
    ComputeAction action;
    std::int64_t begin = never;
  };
  static constexpr std::int64_t never = INT64_MAX;

  int stage_of(int chunk) const { return stage_of_chunk_[static_cast<std::size_t>(chunk)]; }
  std::size_t index(ComputeKind kind, int chunk) const {
    return static_cast<std::size_t>(static_cast<int>(kind) * shape_.chunks() + chunk);
  }
  template <class Offer>
  void look(int stage, const Offer& offer) {
    Candidate& best = candidates_[static_cast<std::size_t>(stage)];
    best = {};
    offer(stage, [&](const ComputeAction& action) {
      if (const std::int64_t begin = begin_of(action, stage); begin < best.begin) best = {action, begin};
    });
  }
  std::int64_t begin_of(const ComputeAction& action, int stage) const;
  std::int64_t end_of(ComputeKind kind, int chunk, int micro_batch) const;
  bool carry_out_first();

  const PipelineShape& shape_;
  const std::vector<int>& stage_of_chunk_;
  std::vector<int> done_;                        // by kind and chunk
  std::vector<std::vector<std::int64_t>> ends_;  // by kind and chunk, for each micro-batch
  std::vector<std::int64_t> clock_;              // by stage
  std::vector<Candidate> candidates_;            // by stage
  std::vector<std::vector<ComputeAction>> orders_;
  ComputeAction last_;
};

}  // namespace strata::toolbox
