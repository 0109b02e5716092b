#include <ATen/ops/ones.h>
#include <strata/device.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/operators.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("device cpu on its own: type, memory, queues, operators") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Device> cpu(library);
  CHECK(cpu->type() == "cpu");
  CHECK(cpu->count() == 1);
  CHECK(cpu->why().empty());
  CHECK(cpu->select(7).is_cpu());
  const DeviceMemory memory = cpu->memory();
  CHECK(memory.available > 0);
  CHECK(memory.available <= memory.total);
  CHECK(cpu->host_buffer(0).numel() == 0);
  const at::Tensor values = at::ones({100});
  const auto event = cpu->make_event();
  event->synchronize();  // never recorded
  cpu->on(StreamKind::Offload, [&] { values.mul_(3.0); });
  event->record(StreamKind::Offload);
  event->block(StreamKind::Compute);
  CHECK(values.sum().item<double>() == 300.0);
  CHECK(operators::available("sum_of_squares", at::kCPU));
  CHECK(operators::sum_of_squares({values}).item<double>() == 900.0);
}
