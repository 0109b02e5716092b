#include "gpu_use.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace strata::cuda_device {

namespace {

constexpr std::chrono::milliseconds between_samples{100};
constexpr int nvml_success = 0;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

GpuUse::GpuUse(const std::string& library, const std::string& bus, Report report) {
  open(library, bus);
  thread_ = std::thread([this, report = std::move(report)] { sample(report); });
}

// Leaves device_ null if no figure is available.
void GpuUse::open(const std::string& library, const std::string& bus) {
  void* const nvml = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  int (*initialize)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  if (nvml == nullptr || !find(nvml, "nvmlInit_v2", initialize) ||
      !find(nvml, "nvmlDeviceGetHandleByPciBusId_v2", by_bus) || !find(nvml, "nvmlDeviceGetUtilizationRates", read_))
    return;
  if (initialize() != nvml_success || by_bus(bus.c_str(), &device_) != nvml_success) device_ = nullptr;
}

GpuUse::~GpuUse() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<unsigned int> GpuUse::percent() const {
  Utilization now;
  if (device_ == nullptr || read_(device_, &now) != nvml_success) return {};
  return now.gpu;
}

void GpuUse::sample(const Report& report) {
  std::int64_t samples = 0;
  double sum = 0.0;
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, between_samples, [this] { return stopping_; })) {
    const std::optional<unsigned int> now = percent();
    if (now) {
      sum += *now;
      ++samples;
    }
    report(samples == 0 ? std::nullopt : std::optional(sum / static_cast<double>(samples)));
  }
}

}  // namespace strata::cuda_device
