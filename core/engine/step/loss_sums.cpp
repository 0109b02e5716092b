#include "step/loss_sums.hpp"

#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

namespace strata::runtime {

at::Tensor LossSums::zeros(at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(at::kDouble).device(device));
}

MeanLosses MeanLosses::of(const double* sums) {
  const double tokens = sums[LossSums::valid_tokens];
  if (tokens == 0.0)
    throw UserError(
        "every target of this step's micro-batches is -100 (ignored), on every rank, so the loss is undefined; give "
        "each step one target at least that counts");
  MeanLosses means{sums[LossSums::loss] / tokens, std::nullopt, static_cast<std::int64_t>(tokens)};
  if (sums[LossSums::auxiliary_losses] > 0.0) means.auxiliary_loss = sums[LossSums::auxiliary_loss] / tokens;
  return means;
}

}  // namespace strata::runtime
