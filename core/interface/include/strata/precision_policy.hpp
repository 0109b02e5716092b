#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <vector>

namespace strata {

struct LayerInfo;  // <strata/model.hpp>

// State of a step's gradients; equal on all ranks.
struct GradientHealth {
  std::int64_t step = 0;
  double norm = 0.0;  // norm of the unscaled gradient before clipping; infinite or NaN after an overflow
  bool finite = true;
};

// Decision about a step. Apply: the update counts. Skip: only for gradients that are not finite, in which case no rank
// has updated anything; the learning-rate schedule does not advance. Stop: the run ends with stop_reason().
enum class Verdict { Apply, Skip, Stop };

class STRATA_EXPORT PrecisionPolicy : public Plugin {
 public:
  ~PrecisionPolicy() override;
  // Passes the layers of the whole model, equal on all ranks. Called once, before the first product. [any rank]
  virtual void attach(const std::vector<LayerInfo>& layers);
  // Returns a parameter's number formats. Pure: depends only on the description. [any rank]
  virtual DTypes dtypes(const ParameterInfo& parameter) const = 0;
  // Returns the dtype in which activations are computed and sent.
  virtual at::ScalarType activation() const = 0;
  // Returns the factor of the loss before backward; the optimizer divides gradients by the same value.
  virtual double loss_scale() const = 0;
  // True if the policy searches for the loss scale by steps that overflow, so that judge() skips steps of a healthy run
  // too; schedules that update within the step are then refused. False unless overridden.
  virtual bool searches_scale() const;
  // Decides about a step, with equal values on all ranks, once per step; may change the loss scale of the next step.
  virtual Verdict judge(const GradientHealth& health) = 0;
  // Returns one sentence for the user: why Verdict::Stop ended the run.
  virtual std::string stop_reason() const;

  // Returns what a policy measures of the operands of its products, e.g. their largest magnitudes: an fp32 tensor of
  // numbers >= 0 on the run's device, equally long on all ranks, the same tensor in every call. The engine sets it to 0
  // when a training step begins, and before judge() to the maxima over all ranks. Undefined unless overridden: no
  // measurements. A policy with measurements cannot run with `step_policy: speculative`. [any rank]
  virtual at::Tensor maxima();

  // The three products of every matmul of a layer with a weight (ModelContext::linear). The engine calls them without
  // autograd and keeps x from the forward to the weight's gradient. They run on the current stream and do not block.
  // They must not depend on how often they are called: a recomputed layer's forward is called twice, and evaluations
  // come between steps. The optimizer writes w in place between steps. Operands that are not finite must make the
  // product not finite. For a weight shared by tensor-parallel ranks, Parameter::tensor and the other tensors are this
  // rank's part, and ParameterInfo describes the whole. The defaults are libtorch's products in the tensors' dtype.
  // [any rank]
  //
  // Returns x [..., in] times w [out, in] transposed, plus b [out] (may be undefined).
  virtual at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b);
  // Returns the gradient of x, [rows, in]: dy [rows, out] times w [out, in].
  virtual at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w);
  // Adds the gradient of w to `into` [out, in], in the dtype of gradients: dy [rows, out] transposed times x [rows,
  // in]. `first`: overwrites `into` instead, whose contents are unspecified. A schedule that splits the backward calls
  // it later than input_gradient(), when w may have no memory.
  virtual void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w,
                                   const at::Tensor& into, bool first);
};

}  // namespace strata
