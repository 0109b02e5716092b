#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/checks.hpp"
#include "device/usable_device.hpp"

namespace strata::conformance::device_checks {

void memory_is_sane(Subject& subject) {
  const UsableDevice device(subject);
  const DeviceMemory memory = device->memory();
  const std::string says =
      "memory() says " + std::to_string(memory.available) + " of " + std::to_string(memory.total) + " bytes available";
  require(memory.total >= (std::int64_t{64} << 20), says + "; that is less than 64 MiB: both figures must be in bytes");
  require(memory.available > 0 && memory.available <= memory.total,
          says + "; the available memory must be above 0 and at most the total");
  if (!device.place().is_cpu()) return;
  const std::int64_t installed = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  require(memory.total <= installed,
          says + ", but the machine has " + std::to_string(installed) + "; both figures must be in bytes");
}

void host_buffers(Subject& subject) {
  const UsableDevice device(subject);
  std::mt19937_64 random = subject.random("device.host_buffers");
  std::vector<at::Tensor> buffers;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{4097},
                                   (std::int64_t{1} << 20) + 1, static_cast<std::int64_t>(1 + random() % 100'000)}) {
    const at::Tensor buffer = buffers.emplace_back(device->host_buffer(bytes));
    const std::string what = "host_buffer(" + std::to_string(bytes) + ")";
    require(buffer.defined() && buffer.is_cpu() && buffer.is_contiguous(),
            what + " is not a contiguous tensor in host memory");
    require(static_cast<std::int64_t>(buffer.nbytes()) == bytes,
            what + " holds " + std::to_string(buffer.nbytes()) + " bytes");
    require(buffer.scalar_type() == at::kByte && buffer.dim() == 1, what + " is not a 1-dimensional byte tensor");
    if (bytes > 0)
      std::memset(buffer.mutable_data_ptr(), static_cast<int>(buffers.size()), static_cast<std::size_t>(bytes));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i)
    require(buffers[i].eq(static_cast<std::int64_t>(i) + 1).all().item<bool>(), "two live host buffers share memory");
  const at::Tensor& buffer = buffers[3];
  const at::Tensor there = at::arange(buffer.numel(), device.options(at::kLong)).remainder(251).to(at::kByte);
  buffer.copy_(there, /*non_blocking=*/true);
  device->synchronize();
  require(buffer.equal(there.cpu()), "a copy from the device to a host buffer gives other bytes");
}

}  // namespace strata::conformance::device_checks
