#include "program/validate_program.hpp"

#include "program/passes.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace strata::program {

void fail(const std::string& text, const Program& program, std::size_t index) {
  constexpr std::size_t instructions_around = 4;
  std::string listing;
  for (std::size_t i = index > instructions_around ? index - instructions_around : 0;
       i < std::min(index + instructions_around + 1, program.size()); ++i) {
    listing += "\n  " + std::to_string(i) + ": " + to_string(program[i]) + (i == index ? "   <-- here" : "");
  }
  if (index >= program.size()) listing += "\n  the end   <-- here";
  throw Bug(text + listing);
}

namespace {

// The state of one flat parameter's values in the simulation.
struct Values {
  bool prefetched = false;
  bool gathered = false;
};

class ResidencyCheck : ProgramCheck {
 public:
  ResidencyCheck(const Program& program, const ParameterUse& use, const Lookahead& lookahead)
      : ProgramCheck(program, use), lookahead_(lookahead) {}

  void run() {
    for (index_ = 0; index_ < program_.size(); ++index_) {
      const Instruction& instruction = program_[index_];
      const bool moves =
          instruction.op == Op::Prefetch || instruction.op == Op::Gather || instruction.op == Op::Release;
      require(!moves || !lookahead_.resident, "resident parameters are neither gathered nor released");
      if (lookahead_.resident) continue;
      if (instruction.op == Op::Prefetch) prefetch(instruction);
      if (instruction.op == Op::Gather) gather(instruction);
      if (instruction.op == Op::Release) release(instruction);
      if (is_compute(instruction.op)) compute(instruction);
    }
    for (const auto& [parameter, values] : values_) {
      require(!values.prefetched && !values.gathered, format("parameter {} is never released", parameter));
    }
  }

 private:
  void prefetch(const Instruction& instruction) {
    Values& values = values_[instruction.flat_parameter];
    require(!values.prefetched && !values.gathered, "prefetched although it is there or on its way");
    values.prefetched = true;
    live_ += elements(instruction.flat_parameter);
    ahead_ += elements(instruction.flat_parameter);
    require(ahead_ <= lookahead_.elements, "more elements are prefetched than the lookahead allows");
  }

  void gather(const Instruction& instruction) {
    Values& values = values_[instruction.flat_parameter];
    require(!values.gathered, "gathered although it is gathered");
    if (values.prefetched) ahead_ -= elements(instruction.flat_parameter);
    if (!values.prefetched) live_ += elements(instruction.flat_parameter);
    values = {false, true};
  }

  void release(const Instruction& instruction) {
    Values& values = values_[instruction.flat_parameter];
    require(values.gathered, "released although it is not gathered");
    values = {};
    live_ -= elements(instruction.flat_parameter);
  }

  void compute(const Instruction& instruction) {
    std::int64_t own = 0;
    for (const int parameter : values_used(instruction, use_)) {
      const Values& values = values_[parameter];
      const std::string name = format("parameter {}", parameter);
      require(values.gathered, name + " is used without being gathered");
      own += elements(parameter);
    }
    require(live_ <= std::max(lookahead_.live_parameters, own), "more elements are live than the lookahead allows");
  }

  std::int64_t elements(int parameter) const { return use_.flat_parameter(parameter).elements; }

  const Lookahead& lookahead_;
  std::map<int, Values> values_;
  std::int64_t live_ = 0;   // elements gathered or being gathered
  std::int64_t ahead_ = 0;  // elements prefetched, not gathered yet
};

// The state of one flat parameter's gradient in the simulation.
struct Gradient {
  bool borrowed = false;
  bool last_borrowed = false;
  std::map<int, std::size_t> written;  // micro-batch: its last write
  std::set<int> reduced;               // micro-batches
  bool begun = false;                  // some are reduced for the next update
  bool ended = false;                  // by the last of them
};

class ReductionCheck : ProgramCheck {
 public:
  using ProgramCheck::ProgramCheck;

  void run() {
    for (index_ = 0; index_ < program_.size(); ++index_) {
      const Instruction& instruction = program_[index_];
      if (instruction.op == Op::BorrowGradient) borrow(instruction);
      if (is_compute(instruction.op)) write(instruction);
      // Its update is made once more, by the same gradient.
      if (instruction.op == Op::RestoreState) gradients_[instruction.flat_parameter].ended = true;
      if (instruction.op == Op::Reduce) reduce(instruction);
      if (instruction.op == Op::Update && instruction.by == UpdatedBy::ThisStep && instruction.round == 0 &&
          instruction.part == 0)
        update(instruction);
    }
    for (const auto& [parameter, gradient] : gradients_) check_complete(parameter, gradient);
  }

 private:
  void borrow(const Instruction& instruction) {
    Gradient& gradient = gradients_[instruction.flat_parameter];
    require(use_.flat_parameter(instruction.flat_parameter).trainable,
            "the gradient of a frozen parameter is borrowed");
    require(!gradient.borrowed, "the gradient is borrowed already");
    require(instruction.first != gradient.begun, "first is wrong");
    gradient.borrowed = true;
    gradient.last_borrowed = instruction.last;
  }

  void write(const Instruction& instruction) {
    for (const int parameter : use_.of_layer(instruction.layer)) {
      if (!writes_gradient(instruction, use_.flat_parameter(parameter))) continue;
      Gradient& gradient = gradients_[parameter];
      const std::string name = format("the gradient of parameter {}", parameter);
      require(gradient.borrowed, name + " is written without being borrowed");
      require(!gradient.reduced.contains(instruction.micro_batch),
              name + " is written after its micro-batch was reduced");
      gradient.written[instruction.micro_batch] = index_;
    }
  }

  void reduce(const Instruction& instruction) {
    Gradient& gradient = gradients_[instruction.flat_parameter];
    require(use_.flat_parameter(instruction.flat_parameter).trainable, "the gradient of a frozen parameter is reduced");
    require(gradient.borrowed, "reduced without a gradient");
    require(gradient.written.contains(instruction.micro_batch), "reduced before its micro-batch was computed");
    require(instruction.first != gradient.begun, "first is wrong");
    require(!gradient.ended, "reduced after the last for its update");
    require(gradient.reduced.insert(instruction.micro_batch).second, "reduced a second time for its micro-batch");
    require(gradient.last_borrowed == instruction.last, "last is not what it was when the gradient was borrowed");
    gradient.borrowed = false;
    gradient.begun = true;
    gradient.ended = instruction.last;
  }

  void update(const Instruction& instruction) {
    Gradient& gradient = gradients_[instruction.flat_parameter];
    require(gradient.ended && !gradient.borrowed, "updated before its last micro-batch is reduced");
    gradient.begun = gradient.ended = false;
  }

  void check_complete(int parameter, const Gradient& gradient) const {
    const std::string name = format("parameter {}", parameter);
    for (const auto& [micro_batch, unused] : gradient.written) {
      require(gradient.reduced.contains(micro_batch),
              format("{} is never reduced for micro-batch {}", name, micro_batch));
    }
    require(!gradient.borrowed, name + " keeps its gradient");
    require(!gradient.begun || gradient.ended, name + " lacks its last Reduce: last is wrong");
  }

  std::map<int, Gradient> gradients_;
};

}  // namespace

void validate_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead) {
  ResidencyCheck(program, use, lookahead).run();
}

void validate_reduction(const Program& program, const ParameterUse& use) {
  ReductionCheck(program, use).run();
}

}  // namespace strata::program
