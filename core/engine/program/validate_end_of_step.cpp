#include <algorithm>
#include <map>
#include <set>

#include "program/passes.hpp"
#include "program/validate_program.hpp"

#include <strata/format.hpp>

namespace strata::program {
namespace {

class EndOfStepCheck : ProgramCheck {
 public:
  EndOfStepCheck(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                 const std::vector<bool>& sums_of_round, int updates, bool synchronizes)
      : ProgramCheck(program, use),
        replicated_(replicated),
        is_replicated_(replicated.begin(), replicated.end()),
        sums_of_round_(sums_of_round),
        updates_(updates),
        synchronizes_(synchronizes),
        summed_(sums_of_round.size(), false) {
    for (const Instruction& instruction : program) {
      if (instruction.op == Op::Update && instruction.kept()) takes_kept_.insert(instruction.flat_parameter);
      if (instruction.op == Op::Update && instruction.late()) late_.insert(instruction.flat_parameter);
      if (instruction.op == Op::Forward)
        for (const int index : use.of_layer(instruction.layer))
          if (use.flat_parameter(index).trainable) parameters_[index] = {};
    }
  }

  void run() {
    for (index_ = 0; index_ < program_.size(); ++index_) check(program_[index_]);
    require(normed_, "the program has no Norm");
    for (const auto& [number, parameter] : parameters_) {
      require(parameter.published && parameter.updates == std::max(updates_, 1),
              "parameter " + std::to_string(number) +
                  (updates_ == 0 ? " is never published" : " is not published after each of its updates"));
      require(parameter.restored == started_,
              format("parameter {} is not restored for an update as the norm says", number));
      require(parameter.kept == parameter.from_kept,
              format("parameter {}{}", number,
                     parameter.kept ? " keeps a gradient that no update takes" : " is updated by what no step kept"));
    }
  }

 private:
  // How far a trainable flat parameter has come.
  struct Parameter {
    bool reduced = false;   // for the last time
    bool finished = false;  // after that
    bool replicas_summed = false;
    bool squared = false;
    int measured = 0;  // rounds with sums
    int updated = 0;   // rounds
    int part = 0;      // of the round's update, the next
    bool synchronized = false;
    bool published = false;
    int updates = 0;         // made and published
    bool from_kept = false;  // it is updated by what the step before kept
    bool kept = false;       // this step keeps its gradient
    bool saved = false;      // before an update that does not wait for the norm
    bool restored = false;   // for the same update as in the norm
    bool begun = false;      // this step's gradient
  };

  bool is_replicated(int flat_parameter) const { return is_replicated_.contains(flat_parameter); }

  Parameter& trainable(const Instruction& instruction) {
    const auto found = parameters_.find(instruction.flat_parameter);
    require(found != parameters_.end(), to_string(instruction.op) + " of a frozen parameter");
    return found->second;
  }

  // Of a Measure or an Update: by this step's gradient after the norm, or after StartNorm what was saved before, or by
  // the kept gradient before the norm, or by the one that the step before left before this step's; one of these.
  Parameter& updating(const Instruction& instruction) {
    Parameter& parameter = trainable(instruction);
    const bool before_norm = instruction.kept() || instruction.late() || updates_ > 0;
    require(!instruction.late() || !parameter.begun, "the gradient that the step before left is overwritten");
    if (started_ && !before_norm) {
      require(normed_ ? parameter.restored : parameter.saved,
              normed_ ? "updated again and not restored" : "updated before the norm is known, and not saved");
    } else {
      require(normed_ != before_norm, !before_norm         ? "updated before the norm is known"
                                      : instruction.kept() ? "a kept gradient is taken after the norm"
                                                           : "updated after the norm");
    }
    require(parameter.squared || instruction.kept() || instruction.late() || updates_ == 0,
            "updated before its gradient is squared");
    require(instruction.version == parameter.updates, "the number of updates before it is wrong");
    require(parameter.updated + parameter.measured == 0 || parameter.from_kept == instruction.kept(),
            "updated by this step's gradient and by the kept one");
    parameter.from_kept = instruction.kept();
    if (!before_norm) ending_ = true;
    return parameter;
  }

  void check(const Instruction& instruction) {
    const auto rounds = static_cast<int>(sums_of_round_.size());
    const auto round = static_cast<std::size_t>(instruction.round);
    switch (instruction.op) {
      case Op::Reduce: {
        Parameter& parameter = trainable(instruction);
        if (instruction.first) {
          require(parameter.updates == 0 || parameter.published, "reduced for an update before the one before is made");
          const bool late = late_.contains(instruction.flat_parameter);
          parameter = {.updated = late ? parameter.updated : 0,
                       .published = late && parameter.published,
                       .updates = parameter.updates,
                       .begun = true};
          summed_.assign(summed_.size(), false);
        }
        parameter.reduced = instruction.last;
        return;
      }
      case Op::FinishGradient:
        require(!trainable(instruction).finished, "finished a second time");
        trainable(instruction).finished = trainable(instruction).reduced;
        return;
      case Op::SumReplicas:
        require(trainable(instruction).finished && !trainable(instruction).squared,
                "summed over ranks before the gradient is finished, or after it is squared");
        require(is_replicated(instruction.flat_parameter) && !trainable(instruction).replicas_summed &&
                    (updates_ > 0 || replicated_[replicas_summed_++] == instruction.flat_parameter),
                "parameters are not summed over ranks in their order, once each");
        trainable(instruction).replicas_summed = true;
        return;
      case Op::SquareGradient: {
        Parameter& parameter = trainable(instruction);
        require(parameter.finished && !parameter.squared && !normed_, "a finished gradient is squared once");
        require(!is_replicated(instruction.flat_parameter) || parameter.replicas_summed,
                "squared before it is summed over the ranks that make parts of it");
        parameter.squared = true;
        return;
      }
      case Op::StartNorm:
      case Op::Norm:
        require(!normed_ && (instruction.op == Op::Norm || !started_), "a second norm");
        for (const auto& [number, parameter] : parameters_)
          require(parameter.squared && (updates_ == 0 || parameter.updates == updates_),
                  format("the norm lacks parameter {}", number));
        (instruction.op == Op::Norm ? normed_ : started_) = ending_ = true;
        return;
      case Op::SaveState: {
        Parameter& parameter = trainable(instruction);
        require(started_ && !normed_ && !parameter.saved && parameter.updated + parameter.measured == 0,
                "state is saved once, before the updates that do not wait for the norm");
        parameter.saved = true;
        return;
      }
      case Op::RestoreState: {
        Parameter& parameter = trainable(instruction);
        require(normed_ && parameter.saved && parameter.published && !parameter.restored,
                "state is restored once, after the norm, where it was saved and the update was made");
        parameter.updated = parameter.measured = parameter.updates = 0;
        parameter.published = false;
        parameter.restored = true;
        summed_.assign(summed_.size(), false);
        return;
      }
      case Op::Measure: {
        require(sums_of_round_.at(round) && !summed_[round], "measured for no sums, or too late for them");
        Parameter& parameter = updating(instruction);
        require(parameter.updated == instruction.round && parameter.measured <= instruction.round,
                "measured twice for a round, or before the round before");
        parameter.measured = instruction.round + 1;
        return;
      }
      case Op::SumStatistics:
        require(sums_of_round_.at(round) && !summed_[round], "the round has no sums, or has them already");
        for (const auto& [number, parameter] : parameters_)
          require(parameter.measured == instruction.round + 1 ||
                      (updates_ > 0 && (!parameter.squared || parameter.published)),
                  format("the sums lack parameter {}", number));
        summed_[round] = true;
        return;
      case Op::Update: {
        Parameter& parameter = updating(instruction);
        require(parameter.updated == instruction.round && instruction.round < rounds,
                "a round is left out or repeated");
        require(summed_[round] == sums_of_round_[round], "updated before the sums of its round");
        require(parameter.part++ == instruction.part, "a part of the update is left out or repeated");
        if (parameter.part < use_.flat_parameter(instruction.flat_parameter).update_parts) return;
        parameter.part = 0;
        ++parameter.updated;
        return;
      }
      case Op::Synchronize: {
        Parameter& parameter = trainable(instruction);
        require(synchronizes_ && parameter.updated == rounds && !parameter.published && !parameter.synchronized,
                "synchronized once, after the last update and before it is published");
        parameter.synchronized = true;
        return;
      }
      case Op::Publish: {
        Parameter& parameter = trainable(instruction);
        require(parameter.updated == rounds, "published before its last update");
        require(parameter.synchronized == synchronizes_, "published before it is synchronized");
        require(!parameter.published, "published a second time");
        parameter.published = true;
        ++parameter.updates;
        return;
      }
      case Op::Keep: {
        Parameter& parameter = trainable(instruction);
        require(parameter.squared && !parameter.kept, "a gradient is kept once, after it is squared");
        require(parameter.published || !takes_kept_.contains(instruction.flat_parameter),
                "a gradient is kept before the update has taken the one that the step before kept");
        parameter.kept = true;
        return;
      }
      case Op::BorrowGradient:
        trainable(instruction).begun = true;
        break;
      case Op::Forward:
      case Op::Backward:
      case Op::BackwardInput:
        for (const int index : values_used(instruction, use_)) {
          const auto found = parameters_.find(index);
          if (found == parameters_.end() || updates_ > 0) continue;
          const bool late = late_.contains(index);
          require(late ? found->second.published : found->second.updated == 0,
                  format("computes with parameter {}{}", index,
                         late ? " before the update of the step before" : " after its update"));
        }
        [[fallthrough]];
      default:
        require(!ending_ || is_movement(instruction.op), "only the end of the step follows the norm and updates");
    }
  }

  const std::vector<int>& replicated_;  // in their order
  const std::set<int> is_replicated_;
  const std::vector<bool>& sums_of_round_;
  const int updates_;  // within the step
  const bool synchronizes_;
  std::size_t replicas_summed_ = 0;
  std::vector<bool> summed_;  // by round
  std::map<int, Parameter> parameters_;
  std::set<int> takes_kept_;  // that are updated by what the step before kept
  std::set<int> late_;        // that are updated by what the step before left
  bool started_ = false;      // StartNorm came: updates do not wait for the norm
  bool normed_ = false;
  bool ending_ = false;  // the norm or an update has begun
};

}  // namespace

void validate_end_of_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                          const std::vector<bool>& sums_of_round, int updates, bool synchronizes) {
  EndOfStepCheck(program, use, replicated, sums_of_round, updates, synchronizes).run();
}
}  // namespace strata::program
