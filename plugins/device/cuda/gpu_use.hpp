// How busy a GPU is, from NVIDIA's management library.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace strata::cuda_device {

// A thread that asks the driver ten times a second in what part of the last moments the GPU computed, and reports the
// mean since it was made. The driver's figure counts every process on the GPU, and any kernel as the whole GPU. Where
// the library or the figure is missing (a GPU cut by MIG has none) it reports without one.
class GpuUse {
 public:
  using Report = std::function<void(std::optional<double> percent)>;
  // `library`: NVML's file; `bus`: the GPU's PCI address, as cudaDeviceGetPCIBusId writes it; `report` is called on the
  // thread.
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
