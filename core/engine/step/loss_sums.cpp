#include "step/loss_sums.hpp"

#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

namespace strata::step {

at::Tensor LossSums::zeros(at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(at::kDouble).device(device));
}

MeanLosses MeanLosses::of(const double* sums) {
  const double tokens = sums[LossSums::valid_tokens];
  if (tokens == 0.0)
    throw UserError(
        "every target of this step's micro-batches is ignored (-100, or left out by the data's mask), on every rank, "
        "so "
        "the loss is undefined; give each step at least one target: take a larger train.global_batch, or set "
        "data.documents: separate, which leaves out samples without a target");
  MeanLosses means{sums[LossSums::loss] / tokens, std::nullopt, static_cast<std::int64_t>(tokens)};
  if (sums[LossSums::auxiliary_losses] > 0.0) means.auxiliary_loss = sums[LossSums::auxiliary_loss] / tokens;
  return means;
}

}  // namespace strata::step
