// A library with the functions of NVIDIA's management library that device/cuda calls: one GPU, at 0000:01:00.0, that is
// busy for 40 % and 60 % of the time in turns; one at 0000:02:00.0 that has no such figure.
#include <atomic>
#include <cstring>

extern "C" {
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
static int with_figure, without_figure;

int nvmlInit_v2() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:01:00.0") == 0)
    *device = &with_figure;
  else if (std::strcmp(bus, "0000:02:00.0") == 0)
    *device = &without_figure;
  else
    return 6;  // NVML_ERROR_NOT_FOUND
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* use) {
  static std::atomic<unsigned int> calls{0};
  if (device != &with_figure) return 3;  // NVML_ERROR_NOT_SUPPORTED
  use->gpu = calls++ % 2 == 0 ? 40 : 60;
  use->memory = 99;
  return 0;
}
}
