#include "adamw_step.hpp"

#include <strata/operators.hpp>

#include <algorithm>

namespace strata::adamw {
namespace {

STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const AdamFormula<true>& formula) {
  update_elements(tile, gradient_factor, formula);
}

STRATA_UPDATE_CLONES [[gnu::flatten]] void update_coupled(const ElementTile& tile, float gradient_factor,
                                                          const AdamFormula<false>& formula) {
  update_elements(tile, gradient_factor, formula);
}

template <bool decoupled>
std::vector<AdamFormula<decoupled>> formulas_of(std::span<Piece* const> pieces, const StepScalars& scalars,
                                                const AdamwHyperparameters& h) {
  std::vector<AdamFormula<decoupled>> formulas;
  for (const Piece* const piece : pieces) formulas.emplace_back(*piece, scalars, h);
  return formulas;
}

}  // namespace

void adamw_step(std::span<Piece* const> pieces, const StepScalars& scalars, const AdamwHyperparameters& h) {
  if (h.decoupled)
    host_step(pieces, scalars, formulas_of<true>(pieces, scalars, h), update);
  else
    host_step(pieces, scalars, formulas_of<false>(pieces, scalars, h), update_coupled);
}

bool takes_operator_step(const Piece& piece) {
  const at::Device device = piece.master.device();
  const auto is_list = [&](const at::Tensor& tensor) { return tensor.device() == device && tensor.is_contiguous(); };
  const auto is_wide = [&](const at::Tensor& tensor) { return is_list(tensor) && tensor.scalar_type() == at::kFloat; };
  const auto is_known = [&](const at::Tensor& tensor) {
    const at::ScalarType dtype = tensor.scalar_type();
    return is_list(tensor) && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
  };
  return is_wide(piece.master) && std::all_of(piece.state.begin(), piece.state.end(), is_wide) &&
         is_known(piece.gradient) && (!piece.parameter.defined() || is_known(piece.parameter)) &&
         operators::available("adamw_step", device);
}

void adamw_operator_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& h) {
  const AdamFactors factors(piece, scalars, h);
  operators::adamw_step(
      piece.master, piece.gradient, piece.parameter.defined() ? std::optional(piece.parameter) : std::nullopt,
      piece.state[0], piece.state[1], scalars.gradient_factor, scalars.apply,
      {factors.decay, factors.step_size, factors.second_correction, factors.beta1, h.beta2, h.epsilon});
}

void adamw_reference_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& h) {
  if (h.decoupled)
    tensor_step(piece, scalars, AdamFormula<true>(piece, scalars, h));
  else
    tensor_step(piece, scalars, AdamFormula<false>(piece, scalars, h));
}

void step(std::span<Piece* const> pieces, const StepScalars& scalars, const AdamwHyperparameters& h) {
  std::vector<Piece*> in_host_memory;
  for (Piece* const piece : pieces) {
    if (piece->master.is_meta()) continue;  // a dry run counts no working memory
    if (takes_element_pass(*piece))
      in_host_memory.push_back(piece);
    else if (h.decoupled && takes_operator_step(*piece))
      adamw_operator_step(*piece, scalars, h);
    else
      adamw_reference_step(*piece, scalars, h);
  }
  if (!in_host_memory.empty()) adamw_step(in_host_memory, scalars, h);
}

}  // namespace strata::adamw
