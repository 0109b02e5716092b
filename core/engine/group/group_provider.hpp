#pragma once
#include <strata/checked_group.hpp>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "group/fact.hpp"
#include "program/instruction.hpp"

namespace strata::group {

// Activity of a rank: an instruction of the program, or a text between programs, "saving a checkpoint".
using Doing = std::variant<std::string, program::Instruction>;

// Request for a group of which this rank is a member.
struct GroupRequest {
  std::string name;          // unique among this rank's groups, equal on all members: "data[pipeline=0]"
  std::vector<int> members;  // ranks of the run, in group order; this rank is one of them
};

// Creates the groups of a session: real ones over a communicator plugin, or counting ones for a dry run.
class GroupProvider {
 public:
  virtual ~GroupProvider() = default;
  // Connects the members. [collective] over them: all request their groups in the same order. A group of one needs no
  // communicator.
  virtual std::unique_ptr<CheckedGroup> make(const GroupRequest& request) = 0;
  // Compares a text that every rank computed separately with rank 0's; see RunStore::agree. [collective] over the run
  virtual void agree(const std::string& /*what*/, const std::string& /*text*/, const std::string& /*remedy*/) {}
  // Compares facts with rank 0's, in an order that is the same on all ranks. [collective] over the run
  virtual void agree_on(const std::string& /*what*/, const std::vector<Fact>& /*facts*/,
                        const std::string& /*remedy*/) {}
  // Publishes this rank's activity, for ranks that wait for it. See group/board.hpp.
  virtual void does(const Doing& /*what*/) {}
  // Calls `block`, which blocks the host until the device has finished all work, including the last run-wide operation.
  // If groups move tensors on the device's streams, the host waits for other ranks here.
  virtual void wait_for_device(const std::function<void()>& block) { block(); }
  // Ends all operations of this rank's groups: no tensor is touched afterwards, and every later operation fails. For a
  // rank that leaves with an error.
  virtual void stop() {}
};

}  // namespace strata::group
