// Products of 8-bit matrices by the device's own instructions.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/toolbox/eight_bits.hpp>

#include <string>

namespace strata::fp8 {

// Why the device cannot multiply numbers of 8 bits, as the end of a sentence; empty if it can. Tries it on a GPU.
std::string obstacle(at::Device device);

// A matrix in 8 bits, each number of it times a scale.
struct Packed {
  Packed(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
  Packed transposed() const;  // rows in order in memory, too

  at::Tensor numbers;
  at::Tensor unit;  // what 1 stands for: 1 / scale

 private:
  Packed(at::Tensor in_8_bits, at::Tensor one) : numbers(std::move(in_8_bits)), unit(std::move(one)) {}
};

// Whether the device takes matrices of these sizes: left [m, sum] times right [sum, n].
constexpr bool takes(std::int64_t sum, std::int64_t n) {
  return sum % 16 == 0 && n % 16 == 0;
}

// left [m, sum] times right [n, sum] transposed, plus bias [n] (may be undefined), in bf16. `fast`: sums are kept to
// fewer bits than fp32's, which forward products bear and gradients do not.
at::Tensor scaled_product(const Packed& left, const Packed& right, const at::Tensor& bias, bool fast);

}  // namespace strata::fp8
