#include "state/host_step.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace strata::state {

namespace {
// The buffer's first elements, as `like` is.
at::Tensor part_like(const at::Tensor& buffer, const at::Tensor& like) {
  return buffer.narrow(0, 0, static_cast<std::int64_t>(like.nbytes())).view(like.scalar_type());
}
}  // namespace

HostStep::HostStep(const std::vector<OptimizerState::Entry>& entries, StateStore& store, Device& device)
    : store_(store) {
  for (const OptimizerState::Entry& entry : entries) {
    if (!entry.trainable) continue;
    gradient_bytes_ = std::max(gradient_bytes_, static_cast<std::int64_t>(entry.piece.gradient.nbytes()));
    if (entry.writes_copy)
      parameter_bytes_ = std::max(parameter_bytes_, static_cast<std::int64_t>(entry.piece.parameter.nbytes()));
  }
  if (!store.dry_run()) {
    gradient_ = device.host_buffer(gradient_bytes_);
    parameter_ = device.host_buffer(parameter_bytes_);
  }
  store_.count(Category::Staging, Tier::Host, gradient_bytes_ + parameter_bytes_);
}

HostStep::~HostStep() {
  store_.count(Category::Staging, Tier::Host, -gradient_bytes_ - parameter_bytes_);
}

void HostStep::measure(const Piece& part, const StepScalars& scalars,
                       const std::function<void(const Piece&)>& measure) {
  if (scalars.apply.const_data_ptr<float>()[0] == 0.0F) return;
  Piece piece = part;
  piece.gradient = part_like(gradient_, part.gradient);
  piece.gradient.copy_(part.gradient);
  piece.sums = at::zeros(part.sums.sizes(), at::kDouble);
  measure(piece);
  part.sums.add_(piece.sums.to(part.sums.device()));
}

void HostStep::step(OptimizerState::Entry& entry, const StepScalars& scalars,
                    const std::function<void(Piece&)>& update) {
  if (scalars.apply.const_data_ptr<float>()[0] == 0.0F)
    return;  // the host's copy of the parameter would be another piece's
  Piece piece = entry.piece;
  piece.gradient = part_like(gradient_, entry.piece.gradient);
  piece.gradient.copy_(entry.piece.gradient);
  if (piece.sums.defined()) piece.sums = piece.sums.cpu();
  if (entry.writes_copy) piece.parameter = part_like(parameter_, entry.piece.parameter);
  update(piece);
  if (entry.writes_copy) entry.piece.parameter.copy_(piece.parameter);
}

}  // namespace strata::state
