// Makes the run's groups over the communicator plugin's connections. The groups count and keep order (see
// CheckedGroup), and post their operations and waits on the board; a group of one rank copies locally and needs no
// communicator.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/group_provider.hpp"
#include "group/run_store.hpp"

namespace strata::group {

struct GroupSettings {
  Communicator* communicator = nullptr;  // may be null in a run of one rank
  int rank = 0;
  int local_rank = 0;
  at::Device device = at::kCPU;         // device of the tensors that the groups move
  std::chrono::milliseconds timeout{};  // time limit for connecting a group once all members have arrived
  std::string interface_address;        // see LaunchPlace; empty: the address of the store's connection
  bool through_host = false;            // copy tensors to the host even if the communicator could move them directly
};

// Provider of connected groups. Must outlive the groups it makes.
class GroupFactory final : public GroupProvider {
 public:
  GroupFactory(std::unique_ptr<RunStore> store, GroupSettings settings)
      : store_(std::move(store)), settings_(std::move(settings)) {}
  // Connects a group. Throws EnvironmentError naming the ranks that did not connect. A communicator for host memory
  // also works for another device: tensors are copied to the host and back. Throws UserError if it supports neither.
  std::unique_ptr<CheckedGroup> make(const GroupRequest& request) override;
  void agree(const std::string& what, const std::string& text, const std::string& remedy) override;
  void agree_on(const std::string& what, const std::vector<Fact>& facts, const std::string& remedy) override {
    store_->agree(what, facts, remedy);
  }
  void does(const Doing& what) override { store_->board().does(what); }
  void wait_for_device(const std::function<void()>& block) override;
  void stop() override;

 private:
  std::unique_ptr<RunStore> store_;
  GroupSettings settings_;
  std::vector<std::function<void()>> closes_;  // functions that close a group's backend, if it still exists
};

// Returns a group of only this rank: every operation copies input to output or does nothing. [any rank]
std::unique_ptr<CheckedGroup> single_group(const std::string& name, int rank);

}  // namespace strata::group
