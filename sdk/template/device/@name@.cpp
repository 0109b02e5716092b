// The host's processors as a device. A device defines select (which device a rank gets), on and make_event (its streams
// and events) and memory; <strata/device.hpp> is the contract. Here an operator is done when its call returns, so there
// is only one stream and events do nothing. A device of another type also loads that type's libtorch library in its
// constructor.
#include <ATen/ops/empty.h>
#include <unistd.h>
#include <strata/device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class DoneEvent final : public Event {
 public:
  void record(StreamKind) override {}
  void block(StreamKind) override {}
  void synchronize() override {}
};

class HostProcessors final : public Device {
 public:
  HostProcessors(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  std::string type() const override { return "cpu"; }  // libtorch's name
  int count() const override { return 1; }
  std::string why() const override { return ""; }  // the reason in one sentence if count() is 0
  at::Device select(int /*local_rank*/) override { return at::kCPU; }

  void on(StreamKind /*stream*/, const std::function<void()>& work) override { work(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<DoneEvent>(); }
  void synchronize() override {}

  DeviceMemory memory() const override {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    return {.total = sysconf(_SC_PHYS_PAGES) * page, .available = sysconf(_SC_AVPHYS_PAGES) * page};
  }
  at::Tensor host_buffer(std::int64_t bytes) override { return at::empty({bytes}, at::kByte); }
};

}  // namespace

STRATA_PLUGIN(HostProcessors, NoOptions)
