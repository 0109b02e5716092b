#include "program/passes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace strata::program {
namespace {

// The buffers of a layer's inputs that are away. A micro-batch takes the lowest free one.
struct InputsAway {
  std::map<int, int> buffer_of;  // by micro-batch
  std::set<int> free;
  int made = 0;

  void take(int micro_batch) {
    if (free.empty()) free.insert(made++);
    buffer_of.emplace(micro_batch, free.extract(free.begin()).value());
  }
  void give_back(int micro_batch) { free.insert(buffer_of.extract(micro_batch).mapped()); }
};

class Tiers {
 public:
  Tiers(const ParameterUse& use, const std::vector<int>& replicated)
      : use_(use), replicated_(replicated.begin(), replicated.end()) {}

  Program run(const Program& program) {
    rounds_ = 0;
    for (const Instruction& instruction : program) {
      if (instruction.op == Op::Update) rounds_ = std::max(rounds_, instruction.round + 1);
      if (instruction.op == Op::Keep) to_keep_.insert(instruction.flat_parameter);
    }
    for (const Instruction& instruction : program) add(instruction);
    return std::move(result_);
  }

 private:
  void add(const Instruction& instruction) {
    const int flat = instruction.flat_parameter;
    switch (instruction.op) {
      case Op::Prefetch:
        fetch({Category::Parameter, flat});
        result_.push_back(instruction);
        return;
      case Op::Gather:
        return with({{Category::Parameter, flat}}, instruction, updated_here_.erase(flat) > 0);
      case Op::BorrowGradient:
        if (leaving_.flat_parameter == flat) finish();  // it stays
        fetch({Category::Gradient, flat}, !instruction.first);
        result_.push_back(instruction);
        return;
      case Op::Reduce:
        result_.push_back(instruction);
        leave();
        if (use_.flat_parameter(flat).gradient_leaves) leaving_ = instruction;
        return;
      case Op::FinishGradient:
        leave();
        if (!use_.flat_parameter(flat).gradient_leaves) result_.push_back(instruction);
        return;
      case Op::SumReplicas:
        return with({{Category::Gradient, flat}}, instruction, true);
      case Op::SquareGradient:
        if (!squared_.contains(flat)) with({{Category::Gradient, flat}}, instruction, false);
        return;
      case Op::Measure:
        return with(read_by_update(instruction), instruction, false);
      case Op::Keep:
        return keep(instruction);
      case Op::Update:
        return update(instruction);
      case Op::Publish:
        if (!use_.flat_parameter(flat).values_leave) result_.push_back(instruction);
        return;
      case Op::Forward:
      case Op::Backward:
      case Op::BackwardInput:
        return compute(instruction);
      default:
        result_.push_back(instruction);
    }
  }

  std::vector<Moved> read_by_update(const Instruction& instruction) const {
    const int flat = instruction.flat_parameter;
    if (use_.flat_parameter(flat).updates_at_home) return {};
    return {{Category::Gradient, flat, instruction.kept()},
            {Category::Optimizer, flat},
            {Category::Parameter, flat}};  // which may be the master
  }

  // Of a flat parameter.
  Instruction about(Op op, const Moved& moved) const {
    return {.op = op,
            .flat_parameter = moved.owner,
            .category = moved.category,
            .part = moved.part,
            .by = moved.kept ? UpdatedBy::Kept : UpdatedBy::ThisStep};
  }

  void fetch(const Moved& moved, bool contents = true) {
    if (use_.flat_parameter(moved.owner).moves(moved.category, moved.kept) == 0 || !here_.insert(moved).second) return;
    result_.push_back(about(Op::Fetch, moved));
    result_.back().contents = contents;
    result_.push_back(about(Op::Await, moved));
  }

  void store(const Moved& moved, bool changed) {
    if (here_.erase(moved) == 0) return;
    result_.push_back(about(Op::Store, moved));
    result_.back().changed = changed;
    if (changed) result_.push_back(about(Op::Settle, moved));
  }

  void with(const std::vector<Moved>& all, const Instruction& instruction, bool changed) {
    for (const Moved& moved : all) fetch(moved);
    result_.push_back(instruction);
    for (const Moved& moved : all) store(moved, changed);
  }

  // Where the gradient is here when it is squared, and what the step before kept is taken, it is kept then. What kept
  // it holds what is needed of it.
  void keep(const Instruction& instruction) {
    const int flat = instruction.flat_parameter;
    if (to_keep_.erase(flat) == 0) return;
    if (use_.flat_parameter(flat).updates_at_home) return result_.push_back(instruction);
    const Moved gradient{Category::Gradient, flat}, kept{Category::Gradient, flat, true};
    fetch(gradient);
    fetch(kept, false);
    result_.push_back(instruction);
    store(gradient, false);
    store(kept, true);
  }

  // Its input leaves for a buffer that none of the layer's other micro-batches has, and comes back from there.
  void compute(Instruction instruction) {
    if (!use_.input_leaves(instruction)) return result_.push_back(instruction);
    InputsAway& inputs = inputs_away_[instruction.layer];
    const bool leaves = instruction.op == Op::Forward;
    if (leaves) inputs.take(instruction.micro_batch);
    instruction.input_buffer = inputs.buffer_of.at(instruction.micro_batch);
    Instruction movement{.op = Op::Fetch,
                         .micro_batch = instruction.micro_batch,
                         .layer = instruction.layer,
                         .input_buffer = instruction.input_buffer,
                         .category = Category::Activation};
    const auto move = [&](Op op, bool contents, bool changed) {
      movement.op = op;
      movement.contents = contents;
      movement.changed = changed;
      result_.push_back(movement);
    };
    move(Op::Fetch, !leaves, false);
    move(Op::Await, false, false);
    result_.push_back(instruction);
    move(Op::Store, false, leaves);
    if (leaves)
      move(Op::Settle, false, false);
    else
      inputs.give_back(instruction.micro_batch);
  }

  // The reduction that was started last ends. Its flat parameter, or -1.
  int finish() {
    const int flat = std::exchange(leaving_.flat_parameter, -1);
    if (flat >= 0) result_.push_back({.op = Op::FinishGradient, .flat_parameter = flat});
    return flat;
  }

  // The gradient whose reduction was started last goes home.
  void leave() {
    const int flat = finish();
    if (flat < 0) return;
    if (leaving_.last && !replicated_.contains(flat)) {
      result_.push_back({.op = Op::SquareGradient, .flat_parameter = flat});
      squared_.insert(flat);
      if (updated_.contains(flat) && to_keep_.contains(flat) && !use_.flat_parameter(flat).updates_at_home)
        return keep({.op = Op::Keep, .flat_parameter = flat});
    }
    store({Category::Gradient, flat}, true);
  }

  void update(const Instruction& instruction) {
    const int flat = instruction.flat_parameter;
    for (const Moved& moved : read_by_update(instruction)) fetch(moved);
    result_.push_back(instruction);
    for (int part = 1; part < use_.flat_parameter(flat).update_parts; ++part) {
      store({Category::Optimizer, flat, false, part - 1}, true);
      fetch({Category::Optimizer, flat, false, part});
      result_.push_back(instruction);
      result_.back().part = part;
    }
    if (instruction.round + 1 == rounds_) updated_.insert(flat);
    if (instruction.round + 1 == rounds_ && use_.flat_parameter(flat).values_leave) {
      fetch({Category::Parameter, flat});
      result_.push_back({.op = Op::Publish, .flat_parameter = flat, .by = step_of(instruction.by)});
    }
    store({Category::Gradient, flat, instruction.kept()}, false);
    store({Category::Optimizer, flat, false, use_.flat_parameter(flat).update_parts - 1}, true);
    // It is gathered next, and goes home after that.
    if (instruction.late() && instruction.round + 1 == rounds_ && here_.contains({Category::Parameter, flat}))
      updated_here_.insert(flat);
    else
      store({Category::Parameter, flat}, !use_.flat_parameter(flat).updates_at_home);
  }

  const ParameterUse& use_;
  const std::set<int> replicated_;
  Program result_;
  int rounds_ = 0;
  std::set<Moved> here_;
  std::set<int> squared_;
  std::set<int> to_keep_;  // whose Keep is to come
  std::set<int> updated_;
  std::set<int> updated_here_;             // whose parameters are here, and not yet at home
  std::map<int, InputsAway> inputs_away_;  // by layer
  Instruction leaving_;                    // the Reduce of the gradient that leaves next
};

}  // namespace

Program add_tiers(const Program& program, const ParameterUse& use, const std::vector<int>& replicated) {
  return Tiers(use, replicated).run(program);
}

}  // namespace strata::program
