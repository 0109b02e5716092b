#pragma once
#include <strata/checked_group.hpp>

#include <map>
#include <memory>
#include <string>

#include "group/group_plan.hpp"
#include "stage/linear.hpp"
#include "stage/setup.hpp"

namespace strata::stage {

// Groups of a rank, by name, created in the same order on every rank.
class Groups {
 public:
  // Connects the groups that follow from the mesh: the engine's own, then the partitioner's. [collective] over the run
  explicit Groups(const Setup& setup);

  group::GroupProvider& provider() const { return provider_; }
  Group& world() const { return *world_; }
  // Returns this rank's pipeline: group rank = stage.
  CheckedGroup& pipeline() const { return *pipeline_; }
  const LayerGroups& of_layers() const { return of_layers_; }
  Group* tensor() const { return of_layers_.along(Axis::Tensor); }  // null: no tensor parallelism

  // Connects another group, once. [collective] over its members
  CheckedGroup& make(const std::string& name, const group::GroupRequest& request);
  // Returns a group by name; null: there is none.
  CheckedGroup* find(const std::string& name) const;
  const std::map<std::string, std::unique_ptr<CheckedGroup>>& all() const { return groups_; }

  static std::string of_partitioner(const std::string& name) { return "partitioner." + name; }
  static constexpr const char* exchange = "optimizer";  // group for an optimizer's own exchange

 private:
  group::GroupProvider& provider_;
  std::map<std::string, std::unique_ptr<CheckedGroup>> groups_;
  Group* world_;
  LayerGroups of_layers_;
  CheckedGroup* pipeline_;
  const PluginsStop stop_;
};

}  // namespace strata::stage
