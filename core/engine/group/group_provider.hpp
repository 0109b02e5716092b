#pragma once
#include <strata/checked_group.hpp>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "group/fact.hpp"
#include "program/instruction.hpp"

namespace strata::runtime {

// An instruction of the program, or what a rank does between programs: "saving a checkpoint".
using Doing = std::variant<std::string, Instruction>;

// A group of which this rank is a member.
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
  // Compares what every rank computed by itself with rank 0's; see RunStore::agree. [collective] over the run
  virtual void agree(const std::string& /*what*/, const std::string& /*text*/, const std::string& /*remedy*/) {}
  // Compares facts in the same way, in an order that is the same on all ranks.
  virtual void agree_on(const std::string& /*what*/, const std::vector<Fact>& /*facts*/,
                        const std::string& /*remedy*/) {}
  // Publishes what this rank does from now on, for ranks that wait for it. See group/board.hpp.
  virtual void does(const Doing& /*what*/) {}
  // Calls `block`, which blocks the host until the device has finished everything that was started, including the last
  // run-wide operation. If groups move tensors on the device's streams, this is where the host waits for other ranks.
  virtual void wait_for_device(const std::function<void()>& block) { block(); }
  // Ends on this rank what its groups have under way: no tensor is touched afterwards, and every later operation fails.
  // For a rank that leaves with an error.
  virtual void stop() {}
};

}  // namespace strata::runtime
