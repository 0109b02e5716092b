#include <map>
#include <set>
#include <utility>

#include "program/passes.hpp"

namespace strata::program {
namespace {

class Versions {
 public:
  Versions(const Program& program, const ParameterUse& use) : program_(program), use_(use) {
    for (std::size_t at = 0; at < program.size(); ++at) {
      if (program[at].op == Op::Gather) gathers_.insert(program[at].flat_parameter);
      for (const int flat : versioned(program[at])) last_use_[{flat, program[at].version}] = at;
    }
  }

  Program run() {
    for (std::size_t at = 0; at < program_.size(); ++at) {
      const Instruction& instruction = program_[at];
      if (!is_send(instruction.op)) drop_unused(at);  // another stage may be waiting for what is sent
      const int flat = instruction.flat_parameter;
      if (instruction.op == Op::FinishGradient) before_update(flat, at);
      if (instruction.op == Op::Gather) gathered_.insert(flat);
      if (instruction.op == Op::Release) gathered_.erase(flat);
      for (const int used : versioned(instruction)) before_use(used, instruction);
      result_.push_back(instruction);
      if (instruction.op == Op::Publish) ++newest_[flat];
    }
    return std::move(result_);
  }

 private:
  // The flat parameters whose versions the instruction reads.
  std::vector<int> versioned(const Instruction& instruction) const {
    std::vector<int> found;
    if (is_compute(instruction.op))
      for (const int flat : values_used(instruction, use_))
        if (use_.flat_parameter(flat).trainable) found.push_back(flat);
    return found;
  }

  void bind(int flat, int version) {
    if (version == newest_[flat]) version = -1;
    const auto [bound, fresh] = bound_.try_emplace(flat, -1);
    if (std::exchange(bound->second, version) != version)
      result_.push_back({.op = Op::Bind, .flat_parameter = flat, .version = version});
  }

  // The strategy finds its own memory bound, and gathers the new values when they are used again.
  void before_update(int flat, std::size_t at) {
    bind(flat, newest_[flat]);
    const std::pair<int, int> version{flat, newest_[flat]};
    if (const auto last = last_use_.find(version); last != last_use_.end() && last->second > at) {
      result_.push_back({.op = Op::Stash, .flat_parameter = flat, .version = version.second});
      stashed_until_[last->second].insert(version);
    }
    if (gathered_.erase(flat) > 0)
      result_.push_back({.op = Op::Release, .flat_parameter = flat, .phase = Phase::Backward});
  }

  void before_use(int flat, const Instruction& compute) {
    if (gathers_.contains(flat) && gathered_.insert(flat).second)
      result_.push_back({.op = Op::Gather, .flat_parameter = flat, .phase = phase_of(compute)});
    bind(flat, compute.version);
  }

  void drop_unused(std::size_t at) {
    std::set<std::pair<int, int>> unused;
    for (auto first = stashed_until_.begin(); first != stashed_until_.end() && first->first < at;
         first = stashed_until_.erase(first))
      unused.merge(first->second);
    for (const auto& [flat, number] : unused) {
      if (bound_.at(flat) == number) bind(flat, newest_[flat]);
      result_.push_back({.op = Op::Drop, .flat_parameter = flat, .version = number});
    }
  }

  const Program& program_;
  const ParameterUse& use_;
  Program result_;
  std::set<int> gathers_;                                               // flat parameters that the program gathers
  std::set<int> gathered_;                                              // now
  std::map<std::pair<int, int>, std::size_t> last_use_;                 // by flat parameter and version
  std::map<int, int> newest_;                                           // by flat parameter
  std::map<int, int> bound_;                                            // by flat parameter; -1: the newest
  std::map<std::size_t, std::set<std::pair<int, int>>> stashed_until_;  // flat parameters and versions, by last use
};

}  // namespace

Program add_versions(const Program& program, const ParameterUse& use) {
  return Versions(program, use).run();
}

}  // namespace strata::program
