#include <ATen/ops/where.h>
#include <strata/toolbox/element_step.hpp>

namespace strata {

void write_applied(const at::Tensor& target, const at::Tensor& value, const StepScalars& scalars) {
  if (!scalars.apply.is_cpu())
    target.copy_(at::where(scalars.apply.to(target.device()) != 0, value.to(target.scalar_type()), target));
  else if (scalars.apply.item<float>() != 0.0F)  // the host knows it
    target.copy_(value);
}

}  // namespace strata
