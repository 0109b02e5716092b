#include <ATen/ops/ones.h>
#include <strata/error.hpp>

#include "conformance/device/checks.hpp"
#include "conformance/device/usable_device.hpp"

namespace strata::conformance::device_checks {

void usable_or_says_why(Subject& subject) {
  const auto plugin = subject.make<Device>();
  const std::string type = plugin->type();
  try {
    require(at::Device(type).str() == type,
            "type() is '" + type + "'; it must be a device type of libtorch, without an index");
  } catch (const c10::Error&) {
    throw Failure("type() is '" + type + "', which is no device type of libtorch");
  }
  const int count = plugin->count();
  const std::string why = plugin->why();
  require(count >= 0, format("count() is {}", count));
  if (count > 0)
    return require(why.empty(),
                   format("count() is {}, but why() is '{}'; it must be empty if a device can be used", count, why));
  require(why.size() > 10 && why.find('\n') == std::string::npos,
          "count() is 0, but why() is '" + why + "'; it must be one sentence with the reason");
  try {
    plugin->select(0);
  } catch (const EnvironmentError&) {
    return;
  }
  throw Failure("count() is 0, but select(0) returned; it must throw an EnvironmentError if there is no device");
}

void select_gives_its_type(Subject& subject) {
  const UsableDevice device(subject);
  require(at::Device(device->type()).type() == device.place().type(),
          "select(0) gives " + device.place().str() + ", and type() is " + device->type());
  require(device->select(0) == device.place(), "select(0) gives another device the second time");
  const at::Tensor ones = at::ones({1000}, device.options(at::kFloat));
  device->synchronize();
  require(ones.sum().item<double>() == 1000.0, "tensors on " + device.place().str() + " give a wrong sum");
}

}  // namespace strata::conformance::device_checks
