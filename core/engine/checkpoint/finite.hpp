// Checks for values that are not finite, in everything that a run saves, exports or starts from.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/error.hpp>

#include <cstdint>
#include <string>

namespace strata::checkpoint {

// True if no element is NaN or infinite; always for integers. Reads contiguous values on the host in place, and blocks
// for those of a device.
bool is_finite(const at::Tensor& values);

// Returns "NAME holds NaN or infinity (nan at element 5)"; "" if all are finite. `begin`: index of the first value.
std::string not_finite_text(const at::Tensor& values, std::int64_t begin, const std::string& name);

// Throws UserError with not_finite_text() and a remedy. Waits for the values' device.
void check_finite(const at::Tensor& values, std::int64_t begin, const Place& place, const std::string& name);

constexpr const char* not_finite_remedy =
    "; the training diverged, or the weights are damaged: use other weights, such as those of an earlier checkpoint";

}  // namespace strata::checkpoint
