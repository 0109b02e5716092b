#include "stage/memory.hpp"

#include "plugins/plugin_call.hpp"

namespace strata::stage {

Memory::Memory(const Setup& setup)
    : device_(setup.dry_run ? NamedPlugin<Device>{&dry_device_, setup.plugins.device.name} : setup.plugins.device),
      store_(plugins::plugin_call(device_.name, "select()", setup.place.rank,
                                  [&] { return device_->select(setup.place.local_rank); })),
      slots_(store_, *device_),
      stop_(setup) {
  for (const auto& [slot, plugin] : setup.plugins.all())
    plugins::plugin_call(plugin.name, "run_begins()", setup.place.rank,
                         [&, &plugin = plugin] { plugin->run_begins(*this); });
}

}  // namespace strata::stage
