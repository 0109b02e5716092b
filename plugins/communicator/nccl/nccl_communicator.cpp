// Communicator nccl: collectives for tensors in GPU memory. c10d's watchdog thread ends a process that loses a
// connection. Waits have no timeout; the engine calls abort().
#include <c10/core/impl/VirtualGuardImpl.h>
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NcclOptions)

int visible_devices() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

// The first line, and the cause that NCCL names further below.
std::string cause(const std::string& text) {
  static const std::string mark = "Last error:\n";
  std::string line = text.substr(0, text.find('\n'));
  const std::size_t found = text.find(mark);
  if (found == std::string::npos) return line;
  const std::size_t begin = found + mark.size();
  return line + " (" + text.substr(begin, text.find('\n', begin) - begin) + ")";
}

using Connected = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// The result or error of `make`; nothing if it takes longer. NCCL waits without a deadline for ranks that do not come,
// so it does that on a thread, which is left behind: this process then ends.
std::optional<Connected> within(std::chrono::milliseconds timeout, std::function<Connected()> make) {
  auto task = std::make_shared<std::packaged_task<Connected()>>(std::move(make));
  std::future<Connected> made = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (made.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return made.get();
}

class Nccl final : public Communicator {
 public:
  Nccl(PluginContext&, const NcclOptions&) {}
  std::vector<std::string> device_types() const override { return {"cuda"}; }
  std::string unavailable() const override {
    return visible_devices() > 0 ? "" : "no CUDA device is visible to this process";
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupSetup& setup) override {
    if (const std::string reason = unavailable(); !reason.empty()) throw EnvironmentError(reason);
    const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = std::chrono::hours(24 * 365);  // the watchdog requires a timeout
    options->group_name = setup.name;
    // The device that the Device plugin made current.
    const at::Device device = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
    const auto make = [store, options, device, rank = setup.rank, size = setup.size] {
      c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).setDevice(device);
      auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
      backend->setBoundDeviceId(device);
      backend->eagerConnectSingleDevice(device);
      return backend;
    };
    const std::string who = format("group {}: rank {} of {}", setup.name, setup.rank, setup.size);
    try {
      if (auto backend = within(setup.timeout, std::function<Connected()>(make))) return *backend;
    } catch (const std::exception& error) {
      throw EnvironmentError("{} could not connect through NCCL: {}", who, cause(error.what()));
    }
    throw EnvironmentError(
        "{} could not connect through NCCL within {} s (communicator.timeout_s): another rank has ended, or its "
        "network does not respond",
        who, std::chrono::duration<double>(setup.timeout).count());
  }
};

}  // namespace

STRATA_PLUGIN(Nccl, NcclOptions)
