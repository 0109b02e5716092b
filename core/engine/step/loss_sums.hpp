// Sums of losses of a step or a validation.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace strata::step {

// Sums over micro-batches: one tensor, fp64 [LossSums::count] on the run's device, so that one all-reduce sums them
// over the run.
namespace LossSums {
enum Index : std::int64_t { loss, auxiliary_loss, auxiliary_losses /* how many there were */, valid_tokens, count };
at::Tensor zeros(at::Device device);
}  // namespace LossSums

// Means over the valid tokens.
struct MeanLosses {
  double loss = 0.0;
  std::optional<double> auxiliary_loss;  // sum over all layers; empty if none has one
  std::int64_t valid_tokens = 0;

  // Computes the means. `sums`: LossSums, on the host. Throws UserError if no token counts.
  static MeanLosses of(const double* sums);
};

}  // namespace strata::step
