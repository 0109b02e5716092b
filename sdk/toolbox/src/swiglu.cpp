#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/toolbox/swiglu.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>

#include "exponential.hpp"
#include "floating_types.hpp"
#include "wide_rows.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t tile = 1024;   // elements that are in fp32 at a time
constexpr std::int64_t grain = 4096;  // elements for a thread at least

inline float sigmoid(float x) {
  const float e = exponential(x < 0.0F ? x : -x);
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

STRATA_VECTOR_CLONES void forward_of(const float* __restrict gate, const float* __restrict up, float* __restrict y,
                                     std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

STRATA_VECTOR_CLONES void backward_of(const float* __restrict gate, const float* __restrict up,
                                      const float* __restrict dy, float* __restrict dgate, float* __restrict dup,
                                      std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = gate[i], s = sigmoid(x);
    dup[i] = dy[i] * x * s;
    dgate[i] = dy[i] * up[i] * s * (1.0F + x * (1.0F - s));
  }
}

// work(begin, count) for each tile.
template <class Work>
void for_each_tile(std::int64_t elements, const Work& work) {
  at::parallel_for(0, elements, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += tile) work(i, std::min(tile, end - i));
  });
}

class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    if (gate.is_meta()) return at::empty_like(gate);
    if (!takes_wide_rows(gate)) {
      const at::ScalarType wide = wide_type(gate);
      return (at::silu(gate.to(wide)) * up.to(wide)).to(gate.scalar_type());
    }
    const at::Tensor y = at::empty_like(gate);
    with_type_of(gate, [&]<class Scalar>(Scalar) {
      const Scalar *const g = gate.const_data_ptr<Scalar>(), *const u = up.const_data_ptr<Scalar>();
      Scalar* const into = y.mutable_data_ptr<Scalar>();
      for_each_tile(gate.numel(), [&](std::int64_t begin, std::int64_t count) {
        float of_gate[tile], of_up[tile], of_y[tile];
        float* const result = room_for(into + begin, of_y);
        forward_of(widened(g + begin, of_gate, count), widened(u + begin, of_up, count), result, count);
        narrow_into(into + begin, result, count);
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], dy = gradients[0].contiguous();
    const at::Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    if (gate.is_meta()) return {dgate, dup};
    if (!takes_wide_rows(gate)) {
      const at::ScalarType wide = wide_type(gate);
      const at::Tensor x = gate.to(wide), s = at::sigmoid(x), g = dy.to(wide);
      return {(g * up.to(wide) * s * (1 + x * (1 - s))).to(gate.scalar_type()), (g * x * s).to(gate.scalar_type())};
    }
    with_type_of(gate, [&]<class Scalar>(Scalar) {
      const Scalar *const g = gate.const_data_ptr<Scalar>(), *const u = up.const_data_ptr<Scalar>(),
                          *const d = dy.const_data_ptr<Scalar>();
      Scalar *const into_gate = dgate.mutable_data_ptr<Scalar>(), *const into_up = dup.mutable_data_ptr<Scalar>();
      for_each_tile(gate.numel(), [&](std::int64_t begin, std::int64_t count) {
        float of_gate[tile], of_up[tile], of_dy[tile], of_dgate[tile], of_dup[tile];
        float *const gate_result = room_for(into_gate + begin, of_dgate), *const up_result =
                                                                              room_for(into_up + begin, of_dup);
        backward_of(widened(g + begin, of_gate, count), widened(u + begin, of_up, count),
                    widened(d + begin, of_dy, count), gate_result, up_result, count);
        narrow_into(into_gate + begin, gate_result, count);
        narrow_into(into_up + begin, up_result, count);
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
