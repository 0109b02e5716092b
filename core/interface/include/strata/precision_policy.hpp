#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>
#include <strata/plugin.hpp>

#include <cstdint>

namespace strata {

// The state of a step's gradients; equal on all ranks.
struct GradientHealth {
  std::int64_t step = 0;
  double norm = 0.0;  // of the unscaled gradient before clipping; infinite or NaN after an overflow
  bool finite = true;
};

// The decision about a step. Apply: the update stands. Skip: no rank changed anything and the learning-rate schedule
// does not advance; only for gradients that are not finite, which no rank has applied. Stop: the run ends with
// stop_reason().
enum class Verdict { Apply, Skip, Stop };

class STRATA_EXPORT PrecisionPolicy : public Plugin {
 public:
  ~PrecisionPolicy() override;
  // [any rank] Pure: depends only on the parameter's description.
  virtual DTypes dtypes(const ParameterInfo& parameter) const = 0;
  // The dtype in which activations are computed and sent.
  virtual at::ScalarType activation() const = 0;
  // The loss is multiplied by this before backward; the optimizer divides gradients by the same value.
  virtual double loss_scale() const = 0;
  // Called once per step with equal values on all ranks; may change the loss scale of the next step.
  virtual Verdict judge(const GradientHealth& health) = 0;
  // Tells the user in one sentence why Verdict::Stop ended the run.
  virtual std::string stop_reason() const;
  // x [..., in] times w [out, in] transposed, plus b [out] (may be undefined). Every weight matmul of a layer calls it.
  // The default is libtorch's linear in the tensors' dtype.
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);
};

}  // namespace strata
