#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <unistd.h>

#include <vector>

#include "conformance/device/checks.hpp"
#include "conformance/drawn/draws.hpp"

#include <strata/format.hpp>

namespace strata::conformance::device_checks {

void memory_is_sane(Subject& subject) {
  const UsableDevice device(subject);
  const DeviceMemory memory = device->memory();
  const std::string says = format("memory() says {} of {} bytes available", memory.available, memory.total);
  require(memory.total >= (std::int64_t{64} << 20), says + "; that is less than 64 MiB: both figures must be in bytes");
  require(memory.available > 0 && memory.available <= memory.total,
          says + "; the available memory must be above 0 and at most the total");
  if (!device.place().is_cpu()) return;
  const std::int64_t installed = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  require(memory.total <= installed,
          format("{}, but the machine has {}; both figures must be in bytes", says, installed));
}

void host_buffers(const UsableDevice& device, Draws& draws) {
  std::vector<at::Tensor> buffers;
  const at::Tensor row = at::arange(1 << 16, device.options(at::kLong)).remainder(251).to(at::kByte);
  for (auto count = draws.between(1, 12); count > 0; --count) {
    const std::int64_t bytes = draws.chance(8) ? 0 : draws.size(1 << 16);
    const at::Tensor buffer = buffers.emplace_back(device->host_buffer(bytes));
    const std::string what = format("host_buffer({})", bytes);
    require(buffer.defined() && buffer.is_cpu() && buffer.is_contiguous(),
            what + " is not a contiguous tensor in host memory");
    require(buffer.numel() == bytes && buffer.scalar_type() == at::kByte && buffer.dim() == 1,
            format("{} is not a 1-dimensional byte tensor of {} elements", what, bytes));
    // From the device, each other bytes.
    buffer.copy_(row.narrow(0, 0, bytes) + static_cast<std::int64_t>(buffers.size()), /*non_blocking=*/true);
  }
  device->synchronize();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    require(buffers[i].equal((row.narrow(0, 0, buffers[i].numel()) + static_cast<std::int64_t>(i) + 1).cpu()),
            "host buffer " + std::to_string(i) + " of " + std::to_string(buffers.size()) +
                " that live at once does not hold the bytes that were copied to it from the device");
}

}  // namespace strata::conformance::device_checks
