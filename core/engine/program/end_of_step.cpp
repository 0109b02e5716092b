// Pass 4, second part: the end of the step, with each update at its place.
#include <algorithm>
#include <set>
#include <utility>

#include "program/passes.hpp"

namespace strata::program {
namespace {

class EndOfStep {
 public:
  EndOfStep(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
            const UpdatePlan& updates)
      : program_(program),
        use_(use),
        replicated_(replicated),
        updates_(updates),
        all_(updated_parameters(program, use)) {
    find_places();
    if (updates_.has(UpdatePlace::WithinStep)) find_chunks();
  }

  Program run() {
    std::map<int, int> updates_of_chunk;
    for (std::size_t place = 0; place < program_.size(); ++place) {
      const Instruction& instruction = program_[place];
      if (const auto here = before_.find(place); here != before_.end()) update(here->second, UpdatedBy::LastStep);
      if (instruction.op == Op::Update) {
        update_within_step(instruction.chunk, updates_of_chunk[instruction.chunk]++);
      } else {
        result_.push_back(instruction);
        if (instruction.op == Op::Reduce && instruction.last) reduced_.push_back(instruction.flat_parameter);
      }
      if (const auto here = after_.find(place); here != after_.end()) update(here->second, UpdatedBy::Kept);
    }
    const bool within_step = updates_.has(UpdatePlace::WithinStep);
    finish(within_step ? std::vector<int>{} : all_);
    update_by_norm(at(UpdatePlace::BeforeNorm), at(UpdatePlace::AtEnd));
    return std::move(result_);
  }

 private:
  std::vector<int> at(UpdatePlace place) const {
    std::vector<int> found;
    std::ranges::copy_if(all_, std::back_inserter(found), [&](int flat) { return updates_.place.at(flat) == place; });
    return found;
  }

  // Updates with sums stand together: before the first use of any parameter, or after the last.
  void find_places() {
    std::map<int, std::size_t> first, last;
    for (std::size_t place = 0; place < program_.size(); ++place)
      for (const int flat : used_by(program_[place])) {
        first.emplace(flat, place);
        last[flat] = place;
      }
    for (const int flat : at(UpdatePlace::BeforeUse)) before_[updates_.has_sums() ? 0 : first.at(flat)].push_back(flat);
    for (const int flat : at(UpdatePlace::AfterUse))
      after_[updates_.has_sums() ? program_.size() - 1 : last.at(flat)].push_back(flat);
  }

  void find_chunks() {
    std::map<int, Program> forwards;
    for (const Instruction& instruction : program_)
      if (instruction.op == Op::Forward) forwards[instruction.chunk].push_back(instruction);
    for (const auto& [chunk, program] : forwards) of_chunk_[chunk] = updated_parameters(program, use_);
  }

  std::vector<int> used_by(const Instruction& instruction) const {
    if (is_compute(instruction.op)) return use_.of_layer(instruction.layer);
    if (instruction.flat_parameter >= 0) return {instruction.flat_parameter};
    return {};
  }

  void for_each(const std::vector<int>& parameters, Instruction instruction) {
    for (const int flat : parameters) {
      instruction.flat_parameter = flat;
      result_.push_back(instruction);
    }
  }

  // All rounds of the updates of these parameters.
  void update(const std::vector<int>& parameters, UpdatedBy by, int version = 0) {
    if (parameters.empty()) return;
    for (int round = 0; round < static_cast<int>(updates_.sums_of_round.size()); ++round) {
      if (updates_.sums_of_round[static_cast<std::size_t>(round)]) {
        for_each(parameters, {.op = Op::Measure, .round = round, .by = by, .version = version});
        result_.push_back({.op = Op::SumStatistics, .round = round, .by = step_of(by)});
      }
      for_each(parameters, {.op = Op::Update, .round = round, .by = by, .version = version});
    }
    for (const int flat : parameters) {
      if (updates_.averages) for_each({flat}, {.op = Op::Synchronize});
      for_each({flat}, {.op = Op::Publish, .by = step_of(by)});
    }
  }

  // Finishes the gradients of these parameters, in the order of their last Reduce, and takes their squares.
  void finish(const std::vector<int>& parameters) {
    const std::set<int> wanted(parameters.begin(), parameters.end());
    for (const int flat : reduced_)
      if (wanted.contains(flat)) for_each({flat}, {.op = Op::FinishGradient});
    std::erase_if(reduced_, [&](int flat) { return wanted.contains(flat); });
    for (const int flat : replicated_)
      if (wanted.contains(flat)) for_each({flat}, {.op = Op::SumReplicas});
    for (const int flat : parameters) {
      for_each({flat}, {.op = Op::SquareGradient});
      if (updates_.place.at(flat) == UpdatePlace::AfterUse) for_each({flat}, {.op = Op::Keep});
    }
  }

  void update_within_step(int chunk, int number) {
    const std::vector<int>& parameters = of_chunk_[chunk];
    finish(parameters);
    update(parameters, UpdatedBy::ThisStep, number);
  }

  void update_by_norm(const std::vector<int>& before, const std::vector<int>& after) {
    if (updates_.assumes_norm) {
      result_.push_back({.op = Op::StartNorm});
      for_each(before, {.op = Op::SaveState});
      update(before, UpdatedBy::ThisStep);
    }
    result_.push_back({.op = Op::Norm});
    for_each(before, {.op = Op::RestoreState});
    update(before, UpdatedBy::ThisStep);
    update(after, UpdatedBy::ThisStep);
  }

  const Program& program_;
  const ParameterUse& use_;
  const std::vector<int>& replicated_;
  const UpdatePlan& updates_;
  const std::vector<int> all_;  // trainable flat parameters, in the order of their updates
  Program result_;
  std::map<std::size_t, std::vector<int>> before_, after_;  // parameters whose updates stand before or after a place
  std::map<int, std::vector<int>> of_chunk_;                // by chunk, if chunks update within the step
  std::vector<int> reduced_;                                // for the last time, and not finished
};

}  // namespace

Program add_end_of_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                        const UpdatePlan& updates) {
  return EndOfStep(program, use, replicated, updates).run();
}

Program pending_updates(const Program& program) {
  Program updates;
  for (const Instruction& instruction : program) {
    if (!instruction.late()) continue;
    updates.push_back(instruction);
    updates.back().by = UpdatedBy::ThisStep;
  }
  return updates;
}

}  // namespace strata::program
