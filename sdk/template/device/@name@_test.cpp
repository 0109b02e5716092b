// @name@: its description and the order of its streams.
#include <ATen/ops/ones.h>
#include <strata/device.hpp>
#include <strata/fakes/plugin_library.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("a device says whether it can be used, and what memory it has") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Device> device(library);
  CHECK((device->count() > 0) == device->why().empty());
  CHECK(device->select(0).str() == device->type());
  const DeviceMemory memory = device->memory();
  CHECK(memory.available > 0);
  CHECK(memory.available <= memory.total);
  CHECK(device->host_buffer(10).nbytes() == 10);
}

TEST_CASE("work behind an event sees what was done before it") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Device> device(library);
  const at::Tensor values = at::ones({1000}, at::TensorOptions().device(device->select(0)));
  const auto event = device->make_event();
  device->on(StreamKind::Compute, [&] { values.mul_(2); });
  event->record(StreamKind::Compute);
  event->block(StreamKind::Communication);
  device->on(StreamKind::Communication, [&] { values.add_(1); });
  device->synchronize();
  CHECK(values.sum().item<double>() == 3000.0);
}
