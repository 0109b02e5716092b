// Device cpu: the host's processors. An operator is done when its call returns, so there are no real streams and events
// do nothing.
#include <ATen/ops/empty.h>
#include <strata/device.hpp>
#include <strata/plugin_context.hpp>

#include "host_memory.hpp"

namespace {

using namespace strata;

STRATA_NO_OPTIONS(CpuOptions)

class DoneEvent final : public Event {
 public:
  void record(StreamKind) override {}
  void block(StreamKind) override {}
  void synchronize() override {}
};

class Cpu final : public Device {
 public:
  Cpu(PluginContext&, const CpuOptions&) {}
  std::string type() const override { return "cpu"; }
  int count() const override { return 1; }
  std::string why() const override { return {}; }
  at::Device select(int) override { return at::kCPU; }
  void on(StreamKind, const std::function<void()>& work) override { work(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DoneEvent>(); }
  void synchronize() override {}
  DeviceMemory memory() const override { return cpu_device::host_memory(); }
  at::Tensor host_buffer(std::int64_t bytes) override { return at::empty({bytes}, at::kByte); }
};

}  // namespace

STRATA_PLUGIN(Cpu, CpuOptions)
