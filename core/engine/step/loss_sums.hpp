// What a step or a validation sums of its losses.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace strata::runtime {

// The sums of some micro-batches: one tensor, fp64 [LossSums::count] on the run's device, so that one all-reduce makes
// them those of the run.
namespace LossSums {
enum Index : std::int64_t { loss, auxiliary_loss, auxiliary_losses /* how many there were */, valid_tokens, count };
at::Tensor zeros(at::Device device);
}  // namespace LossSums

// Means over the valid tokens.
struct MeanLosses {
  double loss = 0.0;
  std::optional<double> auxiliary_loss;  // of all layers together; nothing where none has one
  std::int64_t valid_tokens = 0;

  // `sums`: LossSums, on the host. Throws UserError where no token counts.
  static MeanLosses of(const double* sums);
};

}  // namespace strata::runtime
