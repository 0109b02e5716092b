#include <strata/operators.hpp>

#include <c10/core/TensorOptions.h>

#include <string>

#include <torch/library.h>

TORCH_LIBRARY(strata, library) {
  library.def(
      "adamw_step(Tensor(a!) master, Tensor gradient, Tensor(b!)? parameter, Tensor(c!) exp_avg, Tensor(d!) "
      "exp_avg_sq, "
      "Tensor gradient_factor, Tensor apply, float decay, float step_size, float second_correction, float beta1, float "
      "beta2, "
      "float epsilon) -> ()");
  library.def("sum_of_squares(Tensor[] tensors) -> Tensor");
}

namespace strata::operators {

bool available(const char* name, at::Device device) {
  const auto found = c10::Dispatcher::singleton().findSchema({std::string("strata::") + name, ""});
  return found && found->hasKernelForDispatchKey(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
}

void adamw_step(const at::Tensor& master, const at::Tensor& gradient, const std::optional<at::Tensor>& parameter,
                const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq, const at::Tensor& gradient_factor,
                const at::Tensor& apply, const AdamwNumbers& numbers) {
  static const auto step =
      c10::Dispatcher::singleton().findSchemaOrThrow("strata::adamw_step", "").typed<AdamwStepFunction>();
  step.call(master, gradient, parameter, exp_avg, exp_avg_sq, gradient_factor, apply, numbers.decay, numbers.step_size,
            numbers.second_correction, numbers.beta1, numbers.beta2, numbers.epsilon);
}

at::Tensor sum_of_squares(const std::vector<at::Tensor>& tensors) {
  static const auto sum =
      c10::Dispatcher::singleton().findSchemaOrThrow("strata::sum_of_squares", "").typed<SumOfSquaresFunction>();
  return sum.call(tensors);
}

}  // namespace strata::operators
