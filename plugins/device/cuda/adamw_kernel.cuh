#pragma once
#include <type_traits>

#include "kernels.hpp"
#include "number_formats.cuh"

namespace strata::cuda_device {

struct NoCopy {};  // the parameter's type where the master is the parameter

// The first element from which every array lies at a multiple of four of its numbers; `count` where there is none.
inline std::int64_t packs_begin(const AdamwArguments& a, std::int64_t gradient_width, std::int64_t parameter_width) {
  const auto aligned = [](const void* array, std::int64_t width, std::int64_t element) {
    return (reinterpret_cast<std::uintptr_t>(array) + static_cast<std::uintptr_t>(element * width)) %
               static_cast<std::uintptr_t>(4 * width) ==
           0;
  };
  for (std::int64_t element = 0; element < 4 && element < a.count; ++element) {
    if (aligned(a.master, 4, element) && aligned(a.exp_avg, 4, element) && aligned(a.exp_avg_sq, 4, element) &&
        aligned(a.gradient, gradient_width, element) &&
        (parameter_width == 0 || aligned(a.parameter, parameter_width, element)))
      return element;
  }
  return a.count;
}

// One element: the formulas of <strata/operators.hpp>, operation for operation those of plugins/optimizer/adamw.
// Compiled with
// --fmad=false, IEEE division and root, so that the bits are those of the processor's kernel.
__device__ inline void adamw_element(float& p, float gradient, float& m, float& v, float gradient_factor,
                                     const AdamwArguments& a) {
  const float g = gradient * gradient_factor;
  m += a.rest1 * (g - m);
  v = a.beta2 * v + a.rest2 * g * g;
  p = p * a.decay - a.step_size * (m / (sqrtf(v) * a.second_correction + a.epsilon));
}

template <typename Number>
__device__ inline Pack<Number>& pack_at(Number* array, std::int64_t element) {
  return *reinterpret_cast<Pack<Number>*>(array + element);
}

// Elements [begin, begin + 4). Every array is read and written once: 30 bytes an element with an fp32 gradient and a
// 16-bit copy.
template <typename Gradient, typename Parameter>
__device__ inline void adamw_pack(const AdamwArguments& a, std::int64_t begin, float gradient_factor) {
  Pack<float> p = pack_at(a.master, begin);
  Pack<float> m = pack_at(a.exp_avg, begin);
  Pack<float> v = pack_at(a.exp_avg_sq, begin);
  const Pack<Gradient> g = *reinterpret_cast<const Pack<Gradient>*>(static_cast<const Gradient*>(a.gradient) + begin);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    adamw_element(p.values[i], widen(g.values[i]), m.values[i], v.values[i], gradient_factor, a);
  pack_at(a.master, begin) = p;
  pack_at(a.exp_avg, begin) = m;
  pack_at(a.exp_avg_sq, begin) = v;
  if constexpr (!std::is_same_v<Parameter, NoCopy>) {
    Pack<Parameter> copy;
#pragma unroll
    for (int i = 0; i < 4; ++i) copy.values[i] = narrow<Parameter>(p.values[i]);
    pack_at(static_cast<Parameter*>(a.parameter), begin) = copy;
  }
}

template <typename Gradient, typename Parameter>
__device__ inline void adamw_single(const AdamwArguments& a, std::int64_t i, float gradient_factor) {
  float p = a.master[i], m = a.exp_avg[i], v = a.exp_avg_sq[i];
  adamw_element(p, widen(static_cast<const Gradient*>(a.gradient)[i]), m, v, gradient_factor, a);
  a.master[i] = p;
  a.exp_avg[i] = m;
  a.exp_avg_sq[i] = v;
  if constexpr (!std::is_same_v<Parameter, NoCopy>) static_cast<Parameter*>(a.parameter)[i] = narrow<Parameter>(p);
}

// Any grid of any number of threads does all elements: packs from `head` on, then what lies before and behind them (at
// most three each; everything where head is count) one by one.
template <typename Gradient, typename Parameter>
__global__ void __launch_bounds__(256) adamw_kernel(const AdamwArguments a) {
  if (*a.apply == 0.0F) return;
  const float gradient_factor = *a.gradient_factor;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = (a.count - a.head) / 4;
  for (std::int64_t pack = thread; pack < packs; pack += threads)
    adamw_pack<Gradient, Parameter>(a, a.head + 4 * pack, gradient_factor);
  for (std::int64_t i = thread; i < a.count - 4 * packs; i += threads)
    adamw_single<Gradient, Parameter>(a, i < a.head ? i : i + 4 * packs, gradient_factor);
}

}  // namespace strata::cuda_device
