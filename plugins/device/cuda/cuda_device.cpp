// Device cuda: NVIDIA GPUs. Uses only libtorch's device-independent interfaces, so this file needs no CUDA header and
// links only libtorch_cpu; libtorch_cuda, which has the operators, is loaded on the first query.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>

#include <array>
#include <filesystem>
#include <optional>

#include "gpu_use.hpp"
#include "page_locks.hpp"

namespace {

using namespace strata;

#define CUDA_OPTIONS(OPTION)                                 \
  OPTION(integer, ranks_per_gpu, 1, "min=1,max=64", "ranks", \
         "Ranks per GPU. More than 1 is for experiments and needs a communicator that supports it.")
STRATA_OPTIONS(CudaOptions, CUDA_OPTIONS)

void* torch_cuda = nullptr;  // handle of libtorch_cuda once loaded

// The reason why CUDA is not usable here, in one sentence; empty if libtorch_cuda is loaded. The first call loads it.
const std::string& load_problem() {
  static const std::string problem = []() -> std::string {
    Dl_info torch{};
    if (dladdr(reinterpret_cast<const void*>(&c10::impl::device_guard_impl_registry), &torch) == 0)
      return "the folder of libtorch cannot be found";
    const std::filesystem::path library = std::filesystem::path(torch.dli_fname).parent_path() / "libtorch_cuda.so";
    torch_cuda = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (torch_cuda != nullptr) return {};
    return std::string("libtorch_cuda cannot be loaded (") + dlerror() +
           "); install the CUDA libraries with cmake/bootstrap.sh --cuda";
  }();
  return problem;
}

// The PCI address of a device, for NVML; empty if unknown.
std::string bus_of(at::Device device) {
  using GetBus = int (*)(char*, int, int);
  const auto get_bus = reinterpret_cast<GetBus>(dlsym(torch_cuda, "cudaDeviceGetPCIBusId"));
  std::array<char, 32> bus{};
  const bool found = get_bus != nullptr && get_bus(bus.data(), static_cast<int>(bus.size()), device.index()) == 0;
  return found ? bus.data() : "";
}

const cuda_device::PageLocks& page_locks() {
  static const cuda_device::PageLocks locks([](const char* function) { return dlsym(torch_cuda, function); });
  return locks;
}

// The three streams of the selected device.
class Queues {
 public:
  explicit Queues(at::Device device) : device_(device), guard_(device.type()) {
    streams_[index(StreamKind::Compute)] = guard_.getDefaultStream(device);
    streams_[index(StreamKind::Communication)] = guard_.getStreamFromGlobalPool(device, true);
    streams_[index(StreamKind::Offload)] = guard_.getStreamFromGlobalPool(device, false);
  }
  at::Device device() const { return device_; }
  c10::Stream stream(StreamKind kind) const { return *streams_[index(kind)]; }
  void synchronize() const { guard_.synchronizeDevice(device_.index()); }

 private:
  static std::size_t index(StreamKind kind) { return static_cast<std::size_t>(kind); }
  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  std::array<std::optional<c10::Stream>, 3> streams_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const Queues& queues) : queues_(queues), event_(queues.device().type()) {}
  void record(StreamKind stream) override { event_.record(queues_.stream(stream)); }
  void block(StreamKind stream) override { event_.block(queues_.stream(stream)); }
  void synchronize() override { event_.synchronize(); }

 private:
  const Queues& queues_;
  c10::Event event_;
};

class Cuda final : public Device {
 public:
  Cuda(PluginContext& context, const CudaOptions& options) : context_(context), ranks_per_gpu_(options.ranks_per_gpu) {}

  std::string type() const override { return "cuda"; }

  int count() const override {
    return load_problem().empty() ? c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount() : 0;
  }

  std::string why() const override {
    if (count() > 0) return {};
    return load_problem().empty() ? "no CUDA device is visible to this process" : load_problem();
  }

  at::Device select(int local_rank) override {
    const int devices = count();
    if (devices == 0) throw EnvironmentError(why());
    const std::int64_t index = local_rank / ranks_per_gpu_;
    if (index >= devices)
      throw EnvironmentError(
          "local rank {} has no CUDA device: {} visible, {} ranks each; start fewer ranks on this host, or set "
          "device.cuda.ranks_per_gpu with a communicator that allows it",
          local_rank, devices, ranks_per_gpu_);
#ifndef STRATA_CUDA_KERNELS
    context_.log(LogLevel::Warning,
                 "built without a CUDA compiler: norms and updates use libtorch's operators, which are slower");
#endif
    const at::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
    at::globalContext().lazyInitDevice(device.type());
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    queues_.emplace(device);
    return device;
  }

  void on(StreamKind stream, const std::function<void()>& work) override {
    if (!watched_) watch();
    const c10::StreamGuard guard(queues().stream(stream));
    work();
  }

  std::unique_ptr<Event> make_event() override {
    return std::make_unique<CudaEvent>(queues());
  }
  void synchronize() override {
    queues().synchronize();
  }

  DeviceMemory memory() const override {
    const c10::DeviceIndex device = queues().device().index();
    c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(c10::DeviceType::CUDA);
    const auto [free, total] = allocator.getMemoryInfo(device);
    const c10::CachingDeviceAllocator::DeviceStats stats = allocator.getDeviceStats(device);
    const std::int64_t cached =
        stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;  // cached by libtorch, available to us
    return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(free) + cached};
  }

  at::Tensor host_buffer(std::int64_t bytes) override {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }

  bool page_lock(Span memory) override {
    return page_locks().acquire(memory);
  }
  void page_unlock(Span memory) override {
    page_locks().release(memory);
  }

 private:
  const Queues& queues() const {
    strata_check(queues_.has_value(), "select() comes before any use of a CUDA device");
    return *queues_;
  }

  // Metrics of the GPU for comparisons, from the first work on: its utilisation, and the memory that libtorch has
  // reserved.
  void watch() {
    watched_ = true;
    const c10::DeviceIndex device = queues().device().index();
    use_.emplace("libnvidia-ml.so.1", bus_of(queues().device()), [this, device](std::optional<double> percent) {
      if (percent) context_.set_metric("busy", "%", *percent);
      const auto stats = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(device);
      context_.set_metric("peak_reserved", "MB", static_cast<double>(stats.reserved_bytes[0].peak) / 1e6);
    });
  }

  PluginContext& context_;
  std::int64_t ranks_per_gpu_;
  std::optional<Queues> queues_;
  bool watched_ = false;
  std::optional<cuda_device::GpuUse> use_;  // its thread uses the context, so it is destroyed first
};

}  // namespace

STRATA_PLUGIN(Cuda, CudaOptions, CUDA_OPTIONS)
