// Delayed scaling (Micikevicius et al., arXiv 2209.05433): an operand's scale is that of the largest magnitude that it
// had in the last steps, so that no pass over it comes before its product.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>
#include <strata/state_store.hpp>
#include <strata/state_stream.hpp>
#include <strata/toolbox/eight_bit_policy.hpp>
#include <strata/toolbox/eight_bits.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata::fp8 {

constexpr const EightBits& format_of(Operand operand) {
  return operand == Operand::Gradient ? e5m2 : e4m3;
}

// Of every operand of every matrix of the model, equal on all ranks: a step's magnitudes are those of the whole batch.
class MagnitudeHistory {
 public:
  // Of this many steps.
  explicit MagnitudeHistory(std::int64_t steps) : steps_(static_cast<std::size_t>(steps)) {}

  // Takes memory for this step's from the store.
  void attach(const std::vector<LayerInfo>& layers, StateStore& store);
  // This step's so far; undefined before attach().
  const at::Tensor& maxima() const { return maxima_; }
  // Notes the magnitude of an operand, fp32 and 0-dimensional, and gives its scale: by the steps before, or where they
  // had none above 0 by the magnitude itself. NaN where that is not finite.
  at::Tensor scale(const at::Tensor& magnitude, const ParameterInfo& weight, Operand operand);
  // Of a step whose gradient was finite, after maxima() became those of all ranks.
  void step_ended();

  void save(StateWriter& writer) const;
  // Throws UserError for the history of other weights.
  void load(StateReader& reader);

 private:
  void set_scales();
  std::string names() const;

  std::size_t steps_;
  std::map<std::string, std::size_t> first_;  // by weight: where its three operands begin in what follows
  std::vector<std::vector<float>> history_;   // the newest last; magnitudes of 0 are left out
  at::Tensor maxima_, scales_;
};

}  // namespace strata::fp8
