#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>
#include <strata/plugin.hpp>

#include <cstdint>

namespace strata {

// What all ranks agreed on at a step's end.
struct GradientHealth {
  std::int64_t step = 0;
  double norm = 0.0;  // of the unscaled gradient, before clipping; infinite or NaN when not finite
  bool finite = true;
};

// What happens with a step's gradients. Apply: the update stands. Skip: nothing changed on any rank and the
// learning-rate schedule does not advance; only for gradients that are not finite, which every rank left unused
// already. Stop: the run ends with stop_reason().
enum class Verdict { Apply, Skip, Stop };

class STRATA_EXPORT PrecisionPolicy : public Plugin {
 public:
  ~PrecisionPolicy() override;
  // [any rank] Pure: from the parameter's description alone.
  virtual DTypes dtypes(const ParameterInfo& parameter) const = 0;
  // What activations are computed and sent in.
  virtual at::ScalarType activation() const = 0;
  // What the loss is multiplied by before backward; gradients are divided by the same value in the optimizer's pass.
  virtual double loss_scale() const = 0;
  // Called once a step with values equal on all ranks; may change the loss scale of the next step.
  virtual Verdict judge(const GradientHealth& health) = 0;
  // A sentence for the person whose run Verdict::Stop ends.
  virtual std::string stop_reason() const;
  // x [..., in] times w [out, in] transposed, plus b [out] (may be undefined): every matmul of a layer comes through
  // here. The default is libtorch's linear in the tensors' dtype.
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);
};

}  // namespace strata
