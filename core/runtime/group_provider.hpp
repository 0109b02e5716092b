// defines: GroupRequest, GroupProvider, CountingGroups
#pragma once
#include <strata/checked_group.hpp>

#include <memory>
#include <string>
#include <vector>

namespace strata::runtime {

// One group this rank is a member of.
struct GroupRequest {
  std::string name;          // unique among this rank's groups, equal on all members: "data[pipeline=0]"
  std::vector<int> members;  // ranks of the run, in group order; this rank is one of them
};

// Where a session's groups come from: real ones over a communicator plugin, or counting ones for a dry run.
class GroupProvider {
 public:
  virtual ~GroupProvider() = default;
  // Connects the members. [collective] over them: all ask for their groups in one order. A group of one needs no communicator.
  virtual std::unique_ptr<CheckedGroup> make(const GroupRequest& request) = 0;
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
