#include <strata/offload_device.hpp>

namespace strata {

Transfer::~Transfer() = default;
OffloadDevice::~OffloadDevice() = default;
std::optional<Span> OffloadDevice::map(Region /*region*/) {
  return std::nullopt;
}

}  // namespace strata
