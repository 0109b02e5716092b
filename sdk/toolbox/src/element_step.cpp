#include <ATen/ops/where.h>
#include <strata/toolbox/element_step.hpp>
#include <strata/toolbox/random_rounding.hpp>

namespace strata {

void write_applied(const at::Tensor& target, const at::Tensor& value, const StepScalars& scalars) {
  if (!scalars.apply.is_cpu())
    target.copy_(at::where(scalars.apply.to(target.device()) != 0, value.to(target.scalar_type()), target));
  else if (scalars.apply.item<float>() != 0.0F)  // the host knows it
    target.copy_(value);
}

void write_weights(const Piece& piece, std::int64_t begin, const at::Tensor& value, const StepScalars& scalars) {
  const at::Tensor exact = value.reshape({-1});
  const at::Tensor values =
      RandomRounding::rounds(piece.master) ? RandomRounding(piece.info, scalars).round(exact, begin) : exact;
  write_applied(piece.master.narrow(0, begin, values.numel()), values, scalars);
  if (piece.parameter.defined()) write_applied(piece.parameter.narrow(0, begin, values.numel()), values, scalars);
}

}  // namespace strata
