// The Device plugins as the engine uses them. Passes with and without a GPU.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <strata/communicator.hpp>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/fakes/plugin_context.hpp>
#include <strata/operators.hpp>

#include <cmath>

#include "catch.hpp"
#include "plugins/registry.hpp"

using namespace strata;

namespace {
plugins::PluginRegistry& registry() {
  static plugins::PluginRegistry all(plugins::search_folders({}));
  return all;
}

bool one_sentence(const std::string& text) {
  return text.size() > 10 && text.find('\n') == std::string::npos;
}

void check_queues(Device& device, at::Device place) {
  const at::Tensor values = at::ones({1000}, at::TensorOptions().device(place));
  const auto event = device.make_event();
  event->block(StreamKind::Compute);  // never recorded: nothing to wait for
  event->synchronize();
  event->record(StreamKind::Compute);
  event->block(StreamKind::Communication);
  device.on(StreamKind::Communication, [&] { values.mul_(2.0); });
  event->record(StreamKind::Communication);
  event->synchronize();
  device.synchronize();
  CHECK(values.sum().item<double>() == 2000.0);
  const at::Tensor buffer = device.host_buffer(12345);
  CHECK(buffer.numel() == 12345);
  CHECK(buffer.is_cpu());
  const DeviceMemory memory = device.memory();
  CHECK(memory.total > (100 << 20));
  CHECK(memory.available > 0);
  CHECK(memory.available <= memory.total);
}
}  // namespace

TEST_CASE("device cpu") {
  fakes::FakePluginContext context("device/cpu", {});
  const auto device = registry().create<Device>("cpu", context);
  CHECK(device->type() == "cpu");
  CHECK(device->count() == 1);
  CHECK(device->why() == "");
  CHECK(device->select(5).is_cpu());
  check_queues(*device, at::kCPU);
}

TEST_CASE("device cpu sums squares exactly to fp64, at any address, length and dtype") {
  fakes::FakePluginContext context("device/cpu", {});
  const auto device = registry().create<Device>("cpu", context);
  REQUIRE(operators::available("sum_of_squares", at::kCPU));
  at::manual_seed(4);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t length : {0, 1, 7, 31, 32, 33, 1024, 16383, 16384, 16385, 300001}) {
      const at::Tensor values = at::randn({length}).to(dtype);
      const double sum = operators::sum_of_squares({values}).item<double>();
      const double expected = values.to(at::kDouble).square().sum().item<double>();
      INFO(length << " of " << c10::toString(dtype));
      CHECK(std::abs(sum - expected) <= 1e-14 * expected);
      const at::Tensor moved = at::empty({length + 5}, values.options()).narrow(0, 5, length).copy_(values);
      CHECK(operators::sum_of_squares({moved}).item<double>() == sum);
      // Cut in two, it differs by fp64's rounding and no more.
      const double parts = operators::sum_of_squares(
                               {values.narrow(0, 0, length / 3), values.narrow(0, length / 3, length - length / 3)})
                               .item<double>();
      CHECK(std::abs(sum - parts) <= 1e-14 * expected);
    }
  }
  const at::Tensor huge = at::full({3}, 3e38);
  CHECK(std::isfinite(operators::sum_of_squares({huge}).item<double>()));
  huge.select(0, 2).fill_(INFINITY);
  CHECK(std::isinf(operators::sum_of_squares({huge}).item<double>()));
  CHECK_THROWS_AS(operators::sum_of_squares({at::ones({4}, at::kDouble)}), c10::Error);
  CHECK_THROWS_AS(operators::sum_of_squares({at::ones({4, 4}).t()}), c10::Error);
}

TEST_CASE("device cuda: usable, or refused in one sentence") {
  OptionValues options;
  options.set("ranks_per_gpu", std::int64_t{1});
  fakes::FakePluginContext context("device/cuda", options);
  const auto device = registry().create<Device>("cuda", context);
  CHECK(device->type() == "cuda");
  if (device->count() == 0) {
    INFO(device->why());
    CHECK(one_sentence(device->why()));
    CHECK_THROWS_AS(device->select(0), EnvironmentError);
    CHECK_THROWS_AS(device->memory(), Bug);
    return;
  }
  CHECK_THROWS_AS(device->select(device->count()), EnvironmentError);
  const at::Device place = device->select(0);
  CHECK(place.is_cuda());
  options.set("ranks_per_gpu", std::int64_t{3});  // local ranks 0, 1 and 2 share the first
  fakes::FakePluginContext sharing("device/cuda", options);
  const auto shared = registry().create<Device>("cuda", sharing);
  CHECK(shared->select(2) == place);
  CHECK_THROWS_AS(shared->select(3 * shared->count()), EnvironmentError);
  device->select(0);
  check_queues(*device, place);
  CHECK(device->host_buffer(8).is_pinned());
}

TEST_CASE("communicator nccl: usable, or refused in one sentence") {
  bool built = false;
  for (const plugins::FoundPlugin* found : registry().list()) built = built || found->manifest.name == "nccl";
  if (!built) {
    WARN("SKIPPED: built without a CUDA toolkit");
    return;
  }
  fakes::FakePluginContext context("communicator/nccl", {});
  try {
    const auto communicator = registry().create<Communicator>("nccl", context);
    CHECK(communicator->device_types() == std::vector<std::string>{"cuda"});
    if (communicator->unavailable() != "") CHECK(one_sentence(communicator->unavailable()));
  } catch (const EnvironmentError& error) {  // the CUDA libraries are not there
    INFO(error.what());
    CHECK(one_sentence(error.what()));
  }
}
