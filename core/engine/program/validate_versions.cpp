#include <map>
#include <set>

#include "program/passes.hpp"
#include "program/validate_program.hpp"

#include <strata/format.hpp>

namespace strata::program {
namespace {

constexpr int newest = -1;

class VersionsCheck : ProgramCheck {
 public:
  VersionsCheck(const Program& program, const ParameterUse& use, bool resident)
      : ProgramCheck(program, use), resident_(resident) {}

  void run() {
    for (index_ = 0; index_ < program_.size(); ++index_) check(program_[index_]);
    for (const auto& [number, values] : values_) {
      const std::string name = format("parameter {}", number);
      require(values.copies.empty(), name + " keeps a copy of its values");
      require(values.bound == newest, name + " keeps a copy bound");
    }
  }

 private:
  // Of one flat parameter.
  struct Values {
    int updates = 0;       // published so far
    int bound = newest;    // or the version of the copy that layers compute with
    std::set<int> copies;  // by version
    bool gathered = false;
    bool changing = false;  // from the first round of an update to its Publish
  };

  void check(const Instruction& instruction) {
    if (is_compute(instruction.op)) return compute(instruction);
    if (instruction.flat_parameter < 0) return;
    Values& values = values_[instruction.flat_parameter];
    const int version = instruction.version;
    switch (instruction.op) {
      case Op::Gather:
      case Op::Release:
        require(values.bound == newest, "gathered or released while a copy is bound");
        values.gathered = instruction.op == Op::Gather;
        return;
      case Op::Measure:
      case Op::Update:
        require(values.bound == newest, "updated while a copy is bound");
        require(!values.gathered, "updated while it is gathered");
        values.changing = values.changing || instruction.op == Op::Update;
        return;
      case Op::Publish:
        values.changing = false;
        if (!instruction.late()) ++values.updates;  // else it is the update before the step's first values
        return;
      case Op::Stash:
        require(version == values.updates && values.bound == newest && !values.changing,
                "copies other values than it says");
        require(resident_ || values.gathered, "copies values that are not there");
        require(values.copies.insert(version).second, "copied twice");
        return;
      case Op::Bind:
        require(version == newest || values.copies.contains(version), "binds a copy that is not there");
        require(version != values.bound, "bound already");
        values.bound = version;
        return;
      case Op::Drop:
        require(values.bound != version, "drops the copy that is bound");
        require(values.copies.erase(version) > 0, "drops a copy that is not there");
        return;
      default:
        return;
    }
  }

  void compute(const Instruction& instruction) {
    for (const int parameter : values_used(instruction, use_)) {
      if (!use_.flat_parameter(parameter).trainable) continue;
      const Values& values = values_[parameter];
      const std::string name = format("parameter {}", parameter);
      require(values.bound != newest || !values.changing, name + " is used between its update and its Publish");
      const int version = values.bound == newest ? values.updates : values.bound;
      require(version == instruction.version, format("{} has the values of version {}", name, version));
    }
  }

  const bool resident_;
  std::map<int, Values> values_;
};

}  // namespace

void validate_versions(const Program& program, const ParameterUse& use, bool resident) {
  VersionsCheck(program, use, resident).run();
}

}  // namespace strata::program
