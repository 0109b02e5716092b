// Optional operators that a Device plugin implements for tensors of its device type. libstrata_interface.so defines
// their schemas in libtorch's namespace "strata"; a Device plugin adds kernels with TORCH_LIBRARY_IMPL(strata, CUDA,
// ...) and the dispatcher finds them. Callers check available() first and need a fallback.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/export.hpp>

#include <optional>
#include <vector>

namespace strata::operators {

// True if operator `name` ("adamw_step") has a kernel for tensors on `device`. False on meta. [any rank]
STRATA_EXPORT bool available(const char* name, at::Device device);

// Scalars of one AdamW step; kernels round each of them, and 1 - beta, to fp32.
struct AdamwNumbers {
  double decay = 1.0;              // 1 - learning rate x weight decay
  double step_size = 0.0;          // learning rate / (1 - beta1^t)
  double second_correction = 1.0;  // 1 / sqrt(1 - beta2^t)
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// Runs strata::adamw_step: one AdamW step in one pass over n elements (Loshchilov and Hutter, arXiv:1711.05101,
// algorithm 2; torch.optim.AdamW), all in fp32, each product and sum rounded separately (no FMA), so that every device
// gives the same bits:
//   g = gradient x gradient_factor;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g g
//   p = p x decay - step_size x (m / (sqrt(v) x second_correction + epsilon));  parameter = p, to nearest, ties to even
// master, exp_avg and exp_avg_sq: fp32 [n], contiguous. gradient: fp32, bf16 or fp16 [n], contiguous, still multiplied
// by the loss scale. parameter: bf16, fp16 or fp32 [n], contiguous; none if the master is the parameter. Slices may
// begin at any element. gradient_factor and apply: 0-dimensional fp32 on the same device; if apply is 0, nothing is
// written, for any gradient. Stream-ordered; does not block the host. Throws c10::Error for tensors that break these
// rules. [any rank]
STRATA_EXPORT void adamw_step(const at::Tensor& master, const at::Tensor& gradient,
                              const std::optional<at::Tensor>& parameter, const at::Tensor& exp_avg,
                              const at::Tensor& exp_avg_sq, const at::Tensor& gradient_factor, const at::Tensor& apply,
                              const AdamwNumbers& numbers);

// Runs strata::sum_of_squares: returns the sum of the squares of all elements of all tensors (fp32, bf16 or fp16,
// contiguous, any length, on one device) as a 0-dimensional fp64 tensor, added in fp64 in an order that depends only on
// the lengths, so equal tensors give equal bits at any address. Stream-ordered; does not block the host. [any rank]
STRATA_EXPORT at::Tensor sum_of_squares(const std::vector<at::Tensor>& tensors);

// C++ types of the kernels, which the dispatcher compares.
using AdamwStepFunction = void(const at::Tensor& master, const at::Tensor& gradient,
                               const std::optional<at::Tensor>& parameter, const at::Tensor& exp_avg,
                               const at::Tensor& exp_avg_sq, const at::Tensor& gradient_factor, const at::Tensor& apply,
                               double decay, double step_size, double second_correction, double beta1, double beta2,
                               double epsilon);
using SumOfSquaresFunction = at::Tensor(at::TensorList tensors);

}  // namespace strata::operators
