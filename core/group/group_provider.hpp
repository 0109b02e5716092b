#pragma once
#include <strata/checked_group.hpp>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "program/instruction.hpp"

namespace strata::runtime {

// An instruction of the program, or what a rank does between programs: "saving a checkpoint".
using Doing = std::variant<std::string, Instruction>;

// One group this rank is a member of.
struct GroupRequest {
  std::string name;          // unique among this rank's groups, equal on all members: "data[pipeline=0]"
  std::vector<int> members;  // ranks of the run, in group order; this rank is one of them
};

// Where a session's groups come from: real ones over a communicator plugin, or counting ones for a dry run.
class GroupProvider {
 public:
  virtual ~GroupProvider() = default;
  // Connects the members. [collective] over them: all ask for their groups in one order. A group of one needs no
  // communicator.
  virtual std::unique_ptr<CheckedGroup> make(const GroupRequest& request) = 0;
  // Says what this rank does from now on, for ranks that wait for it: see group/board.hpp.
  virtual void does(const Doing& /*what*/) {}
  // Calls `block`, which blocks the host until the device has finished all that was started, the last run-wide
  // operation included. Where groups move tensors on the device's streams, the host waits for other ranks here.
  virtual void wait_for_device(const std::function<void()>& block) { block(); }
};

// Groups of a dry run: of any size, moving nothing.
class CountingGroups final : public GroupProvider {
 public:
  explicit CountingGroups(int rank) : rank_(rank) {}
  std::unique_ptr<CheckedGroup> make(const GroupRequest& request) override;

 private:
  int rank_;
};

}  // namespace strata::runtime
