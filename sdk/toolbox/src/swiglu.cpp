#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/toolbox/swiglu.hpp>

#include <cmath>

#include "floating_types.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t grain = 4096;  // elements for a thread at least

class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    if (gate.is_meta()) return at::empty_like(gate);
    if (!gate.is_cpu()) {
      const at::ScalarType wide = wide_type(gate);
      return (at::silu(gate.to(wide)) * up.to(wide)).to(gate.scalar_type());
    }
    const at::Tensor y = at::empty_like(gate);
    with_types_of(gate, [&]<class Scalar, class Wide>(Scalar, Wide) {
      const Scalar *const g = gate.const_data_ptr<Scalar>(), *const u = up.const_data_ptr<Scalar>();
      Scalar* const into = y.mutable_data_ptr<Scalar>();
      at::parallel_for(0, gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Wide x = static_cast<Wide>(g[i]);
          into[i] = static_cast<Scalar>(x / (1 + std::exp(-x)) * static_cast<Wide>(u[i]));
        }
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], dy = gradients[0].contiguous();
    const at::Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    if (gate.is_meta()) return {dgate, dup};
    if (!gate.is_cpu()) {
      const at::ScalarType wide = wide_type(gate);
      const at::Tensor x = gate.to(wide), s = at::sigmoid(x), g = dy.to(wide);
      return {(g * up.to(wide) * s * (1 + x * (1 - s))).to(gate.scalar_type()), (g * x * s).to(gate.scalar_type())};
    }
    with_types_of(gate, [&]<class Scalar, class Wide>(Scalar, Wide) {
      const Scalar *const g = gate.const_data_ptr<Scalar>(), *const u = up.const_data_ptr<Scalar>(),
                          *const d = dy.const_data_ptr<Scalar>();
      Scalar *const into_gate = dgate.mutable_data_ptr<Scalar>(), *const into_up = dup.mutable_data_ptr<Scalar>();
      at::parallel_for(0, gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Wide x = static_cast<Wide>(g[i]), s = 1 / (1 + std::exp(-x)), of = static_cast<Wide>(d[i]);
          into_up[i] = static_cast<Scalar>(of * x * s);
          into_gate[i] = static_cast<Scalar>(of * static_cast<Wide>(u[i]) * s * (1 + x * (1 - s)));
        }
      });
    });
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return SwiGlu::apply(gate.contiguous(), up.contiguous());
}

}  // namespace strata
