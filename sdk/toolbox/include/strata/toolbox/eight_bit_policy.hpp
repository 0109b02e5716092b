// Base of policies that round the operands of a layer's products to 8 bits; everything else is bf16.
#pragma once
#include <strata/toolbox/bf16_policy.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace strata {

#define STRATA_EIGHT_BIT_OPTIONS(OPTION)                                                                           \
  OPTION(text, keep_bf16, "", "", "",                                                                              \
         "Weights whose matmuls stay in bf16: shell patterns over parameter names, separated by commas, such as "  \
         "`*.attention.dense.weight,*.layers.0.*`. Embedding, norms and head of the models that come with Strata " \
         "always stay in bf16.")                                                                                   \
  OPTION(integer, keep_bf16_first, 0, "min=0", "layers",                                                           \
         "Number of first layers that stay in bf16, counting only layers with matmul weights.")                    \
  OPTION(integer, keep_bf16_last, 0, "min=0", "layers",                                                            \
         "Number of last layers that stay in bf16, counting only layers with matmul weights.")                     \
  STRATA_BF16_OPTIONS(OPTION)

// Weights whose products stay in bf16.
class HighWeights {
 public:
  HighWeights(const std::string& patterns, std::int64_t first, std::int64_t last);
  // Applies patterns and counts to the layers. Throws UserError for a pattern without a match, or if no layer is left.
  void attach(const std::vector<LayerInfo>& layers);
  bool contains(const ParameterInfo& weight) const;

 private:
  std::vector<std::string> patterns_;
  std::int64_t first_, last_;
  std::set<std::string> in_layers_;
};

// Role of a tensor in a product with a weight.
enum class Operand { Input, Weight, Gradient };

class EightBitPolicy : public Bf16Policy {
 public:
  template <typename Options>
  explicit EightBitPolicy(const Options& options)
      : Bf16Policy(options), high_(options.keep_bf16, options.keep_bf16_first, options.keep_bf16_last) {}

  void attach(const std::vector<LayerInfo>& layers) override { high_.attach(layers); }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override;
  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override;
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override;

 protected:
  // Returns the operand in bf16, [rows, columns], as 8-bit numbers times scales. The product sums over `dimension`.
  virtual at::Tensor rounded_operand(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand,
                                     int dimension) = 0;
  bool stays_high(const ParameterInfo& weight) const { return high_.contains(weight); }
  // True if layers use the weight only in products that round it.
  bool is_only_rounded(const ParameterInfo& weight) const;

 private:
  HighWeights high_;
};

}  // namespace strata
