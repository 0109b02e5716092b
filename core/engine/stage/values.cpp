#include "stage/values.hpp"

#include <strata/error.hpp>
#include <strata/tensor_units.hpp>

#include "plugins/plugin_call.hpp"
#include "stage/homes.hpp"
#include "stage/units.hpp"

namespace strata::stage {

namespace {

void connect_units(const Setup& setup, Group* tensor) {
  auto* const units = dynamic_cast<TensorUnits*>(setup.plugins.optimizer.plugin);
  if (units == nullptr || tensor == nullptr || !setup.trains()) return;
  plugins::plugin_call(setup.plugins.optimizer.name, "connect_tensor()", setup.place.rank,
                       [&] { units->connect_tensor(*tensor); });
}

state::Layout lay_out(const Setup& setup, Memory& memory, Groups& groups, const Layers& layers) {
  connect_units(setup, groups.tensor());
  std::vector<Layer*> own;
  std::vector<int> numbers;
  for (const StageLayer& layer : layers.own()) {
    own.push_back(layer.layer.get());
    numbers.push_back(layer.number);
  }
  std::map<std::string, ParameterInfo> first_uses;
  for (const auto& [name, tie] : layers.ties()) first_uses.emplace(name, tie.first_use);
  return state::lay_out(own, numbers, *setup.plugins.precision, memory.tensors(), layers.splits_backward(), first_uses,
                        setup.place.coordinates.at(Axis::Tensor), setup.place.tensor_ranks(),
                        [&](const ParameterInfo& parameter) { return unit_in_part(setup, parameter); });
}

std::vector<FlatParameter*> pointers(const state::Layout& layout) {
  std::vector<FlatParameter*> flat;
  for (const auto& parameter : layout.flat) flat.push_back(parameter.get());
  return flat;
}

}  // namespace

// Whether the device is the host is what the plugin says: a dry run of a GPU's run counts what that run will use.
Values::Values(const Setup& setup, config::StepPolicy policy, Memory& memory, Groups& groups, const Layers& layers)
    : memory_(memory),
      groups_(groups),
      partitioner_(setup.plugins.partitioner.name),
      policy_(policy),
      layout_(lay_out(setup, memory, groups, layers)),
      flat_parameters_(pointers(layout_)),
      buffers_(memory.store(), memory.device(), plan_homes(setup, layers, layout_),
               at::Device(setup.plugins.device->type()).is_cpu()),
      stop_(setup, setup.plugins.partitioner.plugin) {
  check_used(setup, buffers_);
  plugins::plugin_call(partitioner_, "attach()", setup.place.rank, [&] { setup.plugins.partitioner->attach(*this); });
}

Group& Values::group(const std::string& name) {
  if (CheckedGroup* const found = groups_.find(Groups::of_partitioner(name))) return *found;
  throw Bug("{} asks for a group \"{}\" that its groups() did not name", partitioner_, name);
}

Buffer& Values::buffer(const BufferRequest& request) {
  const FlatParameterInfo& flat = request.flat->info();
  return buffers_.make({request.category, flat.id}, flat.name, request.elements, request.dtype, request.resident);
}

}  // namespace strata::stage
