// Finds values that are not finite. Checked in whatever a run saves, exports or starts from.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata::checkpoint {

// True if no element is NaN or infinite; always for integers. Reads contiguous values on the host in place, and blocks
// for those of a device.
bool is_finite(const at::Tensor& values);

}  // namespace strata::checkpoint
