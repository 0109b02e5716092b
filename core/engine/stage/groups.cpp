#include "stage/groups.hpp"

#include <strata/error.hpp>

#include "plugins/plugin_call.hpp"

namespace strata::stage {

Groups::Groups(const Setup& setup) : provider_(setup.groups), stop_(setup) {
  const auto& [mesh, place] = std::tie(setup.place.mesh, setup.place.coordinates);
  const auto along = [&](std::string_view name, const std::vector<Axis>& axes) -> CheckedGroup& {
    return make(std::string(name), group::request_along(mesh, place, std::string(name), axes));
  };
  world_ = &along("world", axes_without({}));
  for (const Axis axis : axes_where(&AxisInfo::shares_layers))
    if (mesh.size(axis) > 1) of_layers_.set(axis, along(name_of(axis), {axis}));
  pipeline_ = &along("pipeline", {Axis::Pipeline});
  const NamedPlugin<Partitioner>& partitioner = setup.plugins.partitioner;
  const auto call = [&](const auto& work) {
    return plugins::plugin_call(partitioner.name, "groups()", setup.place.rank, work);
  };
  for (const GroupSpec& spec : call([&] { return partitioner->groups(mesh); })) {
    if (find(of_partitioner(spec.name)) != nullptr)
      throw Bug("{} names group \"{}\" twice", partitioner.name, spec.name);
    if (spec.name == exchange)
      throw Bug("{} names a group \"{}\", which is a name of the engine", partitioner.name, spec.name);
    make(of_partitioner(spec.name), call([&] { return group::data_parallel_request(mesh, place, spec); }));
  }
}

CheckedGroup& Groups::make(const std::string& name, const group::GroupRequest& request) {
  const auto [found, fresh] = groups_.try_emplace(name);
  if (fresh) found->second = provider_.make(request);
  return *found->second;
}

CheckedGroup* Groups::find(const std::string& name) const {
  const auto found = groups_.find(name);
  return found == groups_.end() ? nullptr : found->second.get();
}

}  // namespace strata::stage
