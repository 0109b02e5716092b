#include <map>

#include "program/validate_program.hpp"

namespace strata::program {
namespace {

class TiersCheck : ProgramCheck {
 public:
  using ProgramCheck::ProgramCheck;

  void run() {
    for (index_ = 0; index_ < program_.size(); ++index_) check(program_[index_]);
    for (const auto& [buffer, unused] : buffers_)
      fail("a " + std::string(to_string(buffer.category)) + " buffer of " +
               (buffer.category == Category::Activation ? "layer " : "parameter ") + std::to_string(buffer.owner) +
               " stays on the device",
           program_, program_.size() - 1);
    for (const auto& [buffer, micro_batch] : inputs_)
      fail("the input of layer " + std::to_string(buffer.owner) + " and micro-batch " + std::to_string(micro_batch) +
               " never comes back",
           program_, program_.size() - 1);
  }

 private:
  // Of a buffer that is not at rest at home:
  //   Fetch -> Coming -> Await -> Here <-> Used, while running work uses it -> Store -> at home, or Going ->
  //   Settle
  enum class Stand { Coming, Here, Used, Going };

  // `until_later`: work that continues after the instruction uses the buffer.
  void uses(const Moved& buffer, bool until_later = false) {
    if (buffer.category != Category::Activation &&
        use_.flat_parameter(buffer.owner).moves(buffer.category, buffer.kept) == 0)
      return;
    const auto found = buffers_.find(buffer);
    require(found != buffers_.end() && (found->second == Stand::Here || found->second == Stand::Used),
            "uses a " + std::string(to_string(buffer.category)) + " buffer that is away");
    found->second = until_later ? Stand::Used : Stand::Here;
  }

  // Buffers used at home are there, and not being moved.
  void rests(const Moved& buffer) const {
    require(!buffers_.contains(buffer),
            "uses a " + std::string(to_string(buffer.category)) + " buffer at home that is elsewhere");
  }

  void check(const Instruction& instruction) {
    const int flat = instruction.flat_parameter;
    const Moved moved = moved_by(instruction);
    switch (instruction.op) {
      case Op::Forward:
      case Op::Backward:
      case Op::BackwardInput:
        return compute(instruction);
      case Op::Fetch:
        require(use_.moved_bytes(instruction) > 0, "brings a buffer that does not move");
        require(buffers_.emplace(moved, Stand::Coming).second, "brings a buffer that is not at home");
        return;
      case Op::Await: {
        const auto found = buffers_.find(moved);
        require(found != buffers_.end() && found->second == Stand::Coming, "waits for a buffer that is not coming");
        found->second = Stand::Here;
        return;
      }
      case Op::Store: {
        const auto found = buffers_.find(moved);
        require(found != buffers_.end() && found->second == Stand::Here,
                "takes away a buffer that is away, or still used");
        if (instruction.changed)
          found->second = Stand::Going;
        else
          buffers_.erase(found);
        return;
      }
      case Op::Settle: {
        const auto found = buffers_.find(moved);
        require(found != buffers_.end() && found->second == Stand::Going, "waits for a buffer that is not going home");
        buffers_.erase(found);
        return;
      }
      case Op::Prefetch:
      case Op::Gather:
        return uses({Category::Parameter, flat}, instruction.op == Op::Prefetch);
      case Op::Publish:
        return uses({Category::Parameter, flat});
      case Op::BorrowGradient:
      case Op::Reduce:
        return uses({Category::Gradient, flat}, true);
      case Op::FinishGradient:
      case Op::SumReplicas:
      case Op::SquareGradient:
        return uses({Category::Gradient, flat});
      case Op::Measure:
      case Op::Update: {
        const bool at_home = use_.flat_parameter(flat).updates_at_home;
        for (const Category category : {Category::Gradient, Category::Optimizer, Category::Parameter}) {
          const bool kept = category == Category::Gradient && instruction.kept();
          const Moved buffer{category, flat, kept, category == Category::Optimizer ? instruction.part : 0};
          at_home ? rests(buffer) : uses(buffer);
        }
        return;
      }
      case Op::Keep:
        for (const bool kept : {false, true})
          use_.flat_parameter(flat).updates_at_home ? rests({Category::Gradient, flat, kept})
                                                    : uses({Category::Gradient, flat, kept});
        return;
      default:
        return;
    }
  }

  static Moved input_of(const Instruction& instruction) {
    return {Category::Activation, instruction.layer, false, instruction.input_buffer};
  }

  void compute(const Instruction& instruction) {
    if (!use_.input_leaves(instruction)) return;
    const Moved input = input_of(instruction);
    uses(input);
    if (instruction.op == Op::Forward)
      return require(inputs_.emplace(input, instruction.micro_batch).second, "overwrites another micro-batch's input");
    const auto found = inputs_.find(input);
    require(found != inputs_.end() && found->second == instruction.micro_batch, "finds another micro-batch's input");
    inputs_.erase(found);
  }

  std::map<Moved, int> inputs_;     // the micro-batch whose input a buffer holds
  std::map<Moved, Stand> buffers_;  // that are not at rest at home
};

}  // namespace

void validate_tiers(const Program& program, const ParameterUse& use) {
  TiersCheck(program, use).run();
}

}  // namespace strata::program
