// Communicator nccl: collectives for tensors in GPU memory. c10d's watchdog thread ends a process that loses a
// connection. Waits have no timeout; the engine calls abort().
#include <c10/core/impl/VirtualGuardImpl.h>
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

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
    try {
      auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, setup.rank, setup.size, options);
      // The device that the Device plugin made current.
      const at::Device device = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
      backend->setBoundDeviceId(device);
      backend->eagerConnectSingleDevice(device);
      return backend;
    } catch (const std::exception& error) {
      throw EnvironmentError("group " + setup.name + ": rank " + std::to_string(setup.rank) + " of " +
                             std::to_string(setup.size) + " could not connect through NCCL: " + cause(error.what()));
    }
  }
};

}  // namespace

STRATA_PLUGIN(Nccl, NcclOptions)
