// GPU utilisation from NVIDIA's management library (NVML).
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace strata::cuda_device {

// A thread that reads the driver's GPU utilisation ten times per second and reports the mean since its start. The
// driver counts all processes on the GPU, and counts any running kernel as full use. If NVML or the value is missing
// (under MIG), it reports no value.
class GpuUse {
 public:
  using Report = std::function<void(std::optional<double> percent)>;
  // `library`: NVML's file; `bus`: the GPU's PCI address in the format of cudaDeviceGetPCIBusId; `report` is called on
  // the thread.
  GpuUse(const std::string& library, const std::string& bus, Report report);
  ~GpuUse();
  GpuUse(const GpuUse&) = delete;
  GpuUse& operator=(const GpuUse&) = delete;

 private:
  struct Utilization {  // nvmlUtilization_t
    unsigned int gpu = 0;
    unsigned int memory = 0;
  };
  void open(const std::string& library, const std::string& bus);
  std::optional<unsigned int> percent() const;
  void sample(const Report& report);

  int (*read_)(void* device, Utilization*) = nullptr;  // nvmlDeviceGetUtilizationRates
  void* device_ = nullptr;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace strata::cuda_device
