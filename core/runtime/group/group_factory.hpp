// defines: GroupSettings, GroupFactory
// Makes the run's groups from what the communicator plugin connects. The groups count, keep order and watch deadlines
// (see CheckedGroup); a group of one rank copies locally and needs no communicator.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>

#include <memory>
#include <string>
#include <vector>

#include "runtime/group/group_plan.hpp"
#include "runtime/group/run_store.hpp"

namespace strata::runtime {

struct GroupSettings {
  Communicator* communicator = nullptr;  // may be null when no group has more than one member
  RunStore* store = nullptr;             // the same
  int rank = 0;
  int local_rank = 0;
  at::Device device = at::kCPU;         // whose tensors the groups move
  std::chrono::milliseconds timeout{};  // the deadline of every operation
  std::string interface_address;        // see LaunchPlace
};

// Communicator and store must outlive the groups made here.
class GroupFactory {
 public:
  explicit GroupFactory(GroupSettings settings) : settings_(std::move(settings)) {}

  // The group of the list in which this rank is, connected. [collective over the run]: all ranks call with equal lists
  // in the same order. Throws EnvironmentError naming the ranks that did not come within the timeout.
  std::unique_ptr<CheckedGroup> make(const std::vector<PlannedGroup>& groups);

 private:
  GroupSettings settings_;
};

// A group of this rank alone, [any rank]: every operation copies input to output, or does nothing.
std::unique_ptr<CheckedGroup> single_group(const std::string& name, int rank);

}  // namespace strata::runtime
