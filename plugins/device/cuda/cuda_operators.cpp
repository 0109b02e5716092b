// The operators of <strata/operators.hpp> for CUDA tensors: rules checked, pointers and stream taken from libtorch,
// kernels launched. Built where a CUDA compiler was found. Needs no CUDA header, and of libtorch no more than
// libtorch_cpu.
#include <strata/operators.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/library.h>

#include "kernels.hpp"

namespace strata::cuda_device {
namespace {

void check_launch(const char* name, const char* problem) {
  TORCH_CHECK(problem == nullptr, "strata::", name, ": the kernel could not be launched: ", problem);
}

void* current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

Format format_of(const char* name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Format::Fp32;
    case at::kBFloat16:
      return Format::Bf16;
    case at::kHalf:
      return Format::Fp16;
    default:
      TORCH_CHECK(false, "strata::", name, " takes fp32, bf16 and fp16, not ", tensor.scalar_type());
  }
}

// A list as long as `like`, next to it.
const at::Tensor& checked_list(const at::Tensor& tensor, const at::Tensor& like, const char* role) {
  TORCH_CHECK(tensor.device() == like.device() && tensor.is_contiguous() && tensor.numel() == like.numel(),
              "strata::adamw_step: ", role, " is contiguous, on ", like.device(), " and has ", like.numel(),
              " elements as the master has; it has ", tensor.numel(), " on ", tensor.device());
  return tensor;
}

float* fp32_list(const at::Tensor& tensor, const at::Tensor& like, const char* role) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat, "strata::adamw_step: ", role, " is fp32, not ", tensor.scalar_type());
  return checked_list(tensor, like, role).mutable_data_ptr<float>();
}

const float* fp32_scalar(const at::Tensor& tensor, const at::Tensor& like, const char* role) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.numel() == 1 && tensor.device() == like.device(),
              "strata::adamw_step: ", role, " is one fp32 number on ", like.device());
  return tensor.const_data_ptr<float>();
}

void adamw_step(const at::Tensor& master, const at::Tensor& gradient, const std::optional<at::Tensor>& parameter,
                const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& gradient_factor,
                const at::Tensor& apply, double decay, double step_size, double second_correction, double beta1,
                double beta2, double epsilon) {
  const c10::DeviceGuard guard(master.device());
  const bool copies = parameter.has_value() && parameter->defined();
  AdamwFormats formats{format_of("adamw_step", gradient), copies ? format_of("adamw_step", *parameter) : Format::None};
  AdamwArguments a;
  a.master = fp32_list(master, master, "master");
  a.gradient = checked_list(gradient, master, "gradient").const_data_ptr();
  if (copies) a.parameter = checked_list(*parameter, master, "parameter").mutable_data_ptr();
  a.exp_avg = fp32_list(exp_avg, master, "exp_avg");
  a.exp_avg_sq = fp32_list(exp_avg_sq, master, "exp_avg_sq");
  a.gradient_factor = fp32_scalar(gradient_factor, master, "gradient_factor");
  a.apply = fp32_scalar(apply, master, "apply");
  a.count = master.numel();
  a.decay = static_cast<float>(decay);
  a.step_size = static_cast<float>(step_size);
  a.second_correction = static_cast<float>(second_correction);
  a.epsilon = static_cast<float>(epsilon);
  a.beta2 = static_cast<float>(beta2);
  a.rest1 = static_cast<float>(1.0 - beta1);
  a.rest2 = static_cast<float>(1.0 - beta2);
  check_launch("adamw_step", launch_adamw(a, formats, current_stream(master.device())));
}

at::Tensor sum_of_squares(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "strata::sum_of_squares: at least one tensor is needed");
  const at::Device device = tensors.front().device();
  const c10::DeviceGuard guard(device);
  std::vector<SquaresTensor> list;
  std::int64_t chunks = 0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device() == device && tensor.is_contiguous(),
                "strata::sum_of_squares: tensors are contiguous and on one device");
    if (tensor.numel() == 0) continue;
    list.push_back({tensor.const_data_ptr(), tensor.numel(), chunks, format_of("sum_of_squares", tensor)});
    chunks += (tensor.numel() + squares_chunk - 1) / squares_chunk;
  }
  const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble).device(device);
  if (list.empty()) return at::zeros({}, doubles);
  const at::Tensor partial = at::empty({chunks}, doubles), result = at::empty({}, doubles);
  check_launch("sum_of_squares", launch_sum_of_squares(list, partial.mutable_data_ptr<double>(),
                                                       result.mutable_data_ptr<double>(), current_stream(device)));
  return result;
}

}  // namespace
}  // namespace strata::cuda_device

TORCH_LIBRARY_IMPL(strata, CUDA, library) {
  library.impl("adamw_step", TORCH_FN(strata::cuda_device::adamw_step));
  library.impl("sum_of_squares", TORCH_FN(strata::cuda_device::sum_of_squares));
}
