#pragma once
#include <strata/device.hpp>

#include <memory>
#include <string>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// An instance whose device 0 is current; throws Skip with why() if there is none.
class UsableDevice {
 public:
  explicit UsableDevice(Subject& subject)
      : plugin_(std::make_unique<fakes::LoadedPlugin<Device>>(subject.make<Device>())) {
    if ((*plugin_)->count() == 0) throw Skip("the plugin finds no usable device here: " + (*plugin_)->why());
    place_ = (*plugin_)->select(0);
  }
  Device* operator->() const { return &**plugin_; }
  at::Device place() const { return place_; }
  at::TensorOptions options(at::ScalarType dtype) const { return at::TensorOptions().dtype(dtype).device(place_); }

 private:
  std::unique_ptr<fakes::LoadedPlugin<Device>> plugin_;
  at::Device place_ = at::kCPU;
};

}  // namespace strata::conformance
