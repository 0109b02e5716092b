#include <fnmatch.h>
#include <strata/error.hpp>
#include <strata/model.hpp>
#include <strata/toolbox/eight_bit_policy.hpp>

#include <algorithm>

namespace strata {
namespace {

bool fits(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool is_multiplied(const ParameterInfo& parameter) {
  return parameter.linear_only && parameter.shape.size() == 2;
}

}  // namespace

HighWeights::HighWeights(const std::string& patterns, std::int64_t first, std::int64_t last)
    : first_(first), last_(last) {
  for (std::size_t at = 0; at < patterns.size();) {
    const std::size_t comma = std::min(patterns.find(',', at), patterns.size());
    patterns_.push_back(patterns.substr(at, comma - at));
    at = comma + 1;
  }
}

void HighWeights::attach(const std::vector<LayerInfo>& layers) {
  std::vector<std::string> weights;
  std::vector<const LayerInfo*> multiplied;
  for (const LayerInfo& layer : layers) {
    if (std::ranges::any_of(layer.parameters, is_multiplied)) multiplied.push_back(&layer);
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.shape.size() == 2) weights.push_back(parameter.name);
  }
  for (const std::string& pattern : patterns_)
    if (std::ranges::none_of(weights, [&](const std::string& name) { return fits(pattern, name); }))
      throw UserError("keep_bf16 has the pattern \"{}\", which matches no weight of this model; the last weight is {}",
                      pattern, weights.empty() ? "none" : weights.back());
  const auto count = static_cast<std::int64_t>(multiplied.size());
  if (first_ + last_ > 0 && first_ + last_ >= count)
    throw UserError(
        "keep_bf16_first {} and keep_bf16_last {} leave no layer in 8 bits: this model has {} layers with matmul "
        "weights; lower them, or use bf16",
        first_, last_, count);
  for (std::int64_t i = 0; i < count; ++i)
    if (i < first_ || i >= count - last_)
      for (const ParameterInfo& parameter : multiplied[static_cast<std::size_t>(i)]->parameters)
        in_layers_.insert(parameter.name);
}

bool HighWeights::contains(const ParameterInfo& weight) const {
  return in_layers_.contains(weight.name) ||
         std::ranges::any_of(patterns_, [&](const std::string& pattern) { return fits(pattern, weight.name); });
}

bool EightBitPolicy::is_only_rounded(const ParameterInfo& weight) const {
  return is_multiplied(weight) && weight.tie.empty() && !stays_high(weight);
}

at::Tensor EightBitPolicy::linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) {
  if (stays_high(w.info)) return Bf16Policy::linear(x, w, b);
  const at::Tensor rows = rounded_operand(x.reshape({-1, x.size(-1)}), w.info, Operand::Input, 1);
  return strata::linear(rows.view(x.sizes()), rounded_operand(w.tensor, w.info, Operand::Weight, 1), b);
}

at::Tensor EightBitPolicy::input_gradient(const at::Tensor& dy, const Parameter& w) {
  if (stays_high(w.info)) return Bf16Policy::input_gradient(dy, w);
  return product(rounded_operand(dy, w.info, Operand::Gradient, 1),
                 rounded_operand(w.tensor, w.info, Operand::Weight, 0));
}

void EightBitPolicy::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w,
                                         const at::Tensor& into, bool first) {
  if (stays_high(w)) return Bf16Policy::add_weight_gradient(dy, x, w, into, first);
  add_product(into, rounded_operand(dy, w, Operand::Gradient, 0).t(), rounded_operand(x, w, Operand::Input, 0), first);
}

}  // namespace strata
