#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/toolbox/attention.hpp>

#include <algorithm>
#include <cmath>

namespace strata {

RotaryTable::RotaryTable(std::int64_t dimensions, double base, RotaryScaling scaling)
    : dimensions_(dimensions), base_(base), scaling_(scaling) {
  strata_check(dimensions >= 0 && dimensions % 2 == 0 && base > 0.0,
               "rotary dimensions are even, the base is positive");
}

// fp32 roundings at the places where Hugging Face's code has them: frequencies, then angles.
float RotaryTable::frequency(std::int64_t pair) const {
  const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(dimensions_);
  const float plain = 1.0F / static_cast<float>(std::pow(base_, exponent));
  const auto factor = static_cast<float>(scaling_.factor);
  if (scaling_.kind == RotaryScaling::Kind::None) return plain;
  if (scaling_.kind == RotaryScaling::Kind::Linear) return plain / factor;
  const auto low = static_cast<float>(scaling_.low_frequency_factor);
  const auto high = static_cast<float>(scaling_.high_frequency_factor);
  const auto original = static_cast<float>(scaling_.original_positions);
  const float wavelength = 2.0F * static_cast<float>(M_PI) / plain;
  if (wavelength > original / low) return plain / factor;
  if (wavelength < original / high) return plain;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0F - smooth) * plain / factor + smooth * plain;
}

std::pair<at::Tensor, at::Tensor> RotaryTable::at(std::int64_t positions, const at::Device& device) {
  const std::lock_guard lock(mutex_);
  auto& table = tables_[{device.str(), positions}];
  if (table.first.defined()) return table;
  const std::int64_t half = dimensions_ / 2;
  at::Tensor cosines = at::empty({positions, half}, at::kFloat), sines = at::empty({positions, half}, at::kFloat);
  float* cosine = cosines.mutable_data_ptr<float>();
  float* sine = sines.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < half; ++i) {
    const float of_pair = frequency(i);
    for (std::int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<float>(position) * of_pair;
      cosine[position * half + i] = static_cast<float>(std::cos(angle));
      sine[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  table = {cosines.to(device), sines.to(device)};
  return table;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rotates the first two parts of packed [batch, positions, heads, parts, head size], contiguous, where they lie:
// queries and keys, or one of them alone. `direction` -1 undoes it.
template <class Scalar>
void rotate_on_cpu(const at::Tensor& packed, const at::Tensor& cosines, const at::Tensor& sines, float direction) {
  const std::int64_t positions = packed.size(1), heads = packed.size(2), parts = packed.size(3), size = packed.size(4);
  const std::int64_t half = cosines.size(1), rotated = std::min<std::int64_t>(parts, 2);
  Scalar* const data = packed.mutable_data_ptr<Scalar>();
  const float* const cosine_data = cosines.const_data_ptr<float>();
  const float* const sine_data = sines.const_data_ptr<float>();
  at::parallel_for(0, packed.size(0) * positions, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const cosine = cosine_data + row % positions * half;
      const float* const sine = sine_data + row % positions * half;
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t part = 0; part < rotated; ++part) {
          Scalar* const first = data + ((row * heads + head) * parts + part) * size;
          Scalar* const second = first + half;
          for (std::int64_t i = 0; i < half; ++i) {
            const float a = first[i], b = second[i], c = cosine[i], s = sine[i] * direction;
            first[i] = static_cast<Scalar>(a * c - b * s);
            second[i] = static_cast<Scalar>(b * c + a * s);
          }
        }
      }
    }
  });
}

// The same by plain operators, for other devices and fp64.
void rotate_by_operators(const at::Tensor& packed, const at::Tensor& cosines, const at::Tensor& sines,
                         float direction) {
  const std::int64_t positions = cosines.size(0), half = cosines.size(1);
  const at::ScalarType wide = packed.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor both = packed.narrow(3, 0, std::min<std::int64_t>(packed.size(3), 2));
  at::Tensor first = both.narrow(4, 0, half), second = both.narrow(4, half, half);
  const at::Tensor cosine = cosines.view({1, positions, 1, 1, half}),
                   sine = sines.view({1, positions, 1, 1, half}) * direction;
  const at::Tensor a = first.to(wide), b = second.to(wide);
  const at::Tensor rotated = a * cosine - b * sine;
  second.copy_(b * cosine + a * sine);
  first.copy_(rotated);
}

void rotate(const at::Tensor& packed, const at::Tensor& cosines, const at::Tensor& sines, float direction) {
  if (packed.is_meta() || cosines.size(1) == 0) return;
  const at::ScalarType dtype = packed.scalar_type();
  if (!packed.is_cpu() || dtype == at::kDouble) return rotate_by_operators(packed, cosines, sines, direction);
  if (dtype == at::kFloat) return rotate_on_cpu<float>(packed, cosines, sines, direction);
  if (dtype == at::kBFloat16) return rotate_on_cpu<at::BFloat16>(packed, cosines, sines, direction);
  if (dtype == at::kHalf) return rotate_on_cpu<at::Half>(packed, cosines, sines, direction);
  throw Bug("split_heads: qkv is fp32, bf16, fp16 or fp64");
}

class SplitHeads : public torch::autograd::Function<SplitHeads> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& cosines,
                               const at::Tensor& sines, std::int64_t batch, std::int64_t heads) {
    const at::AutoDispatchBelowADInplaceOrView
        no_views;  // the results are autograd's own tensors, not views of its input
    const at::Tensor packed = qkv.view({batch, cosines.size(0), heads, 3, -1});
    rotate(packed, cosines, sines, 1.0F);
    qkv.unsafeGetTensorImpl()->bump_version();  // a backward that saved qkv then detects the overwriting
    context->save_for_backward({cosines, sines});
    context->saved_data["shape"] = packed.sizes().vec();
    context->set_materialize_grads(false);
    variable_list parts;
    for (std::int64_t part = 0; part < 3; ++part) parts.push_back(packed.select(3, part).transpose(1, 2));
    return parts;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> shape = context->saved_data["shape"].toIntVector();
    at::Tensor packed;
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined() && !packed.defined()) packed = at::empty(shape, gradient.options());
    }
    if (!packed.defined()) return {{}, {}, {}, {}, {}};
    for (std::int64_t part = 0; part < 3; ++part) {
      at::Tensor target = packed.select(3, part);
      const at::Tensor& gradient = gradients[static_cast<std::size_t>(part)];
      gradient.defined() ? target.copy_(gradient.transpose(1, 2)) : target.zero_();
    }
    rotate(packed, saved[0], saved[1], -1.0F);
    return {packed.view({shape[0] * shape[1], -1}), {}, {}, {}, {}};
  }
};

// As SplitHeads, of one part.
class RotatedHeads : public torch::autograd::Function<RotatedHeads> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosines,
                            const at::Tensor& sines, std::int64_t batch, std::int64_t size) {
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor packed = x.view({batch, cosines.size(0), x.size(1) / size, 1, size});
    rotate(packed, cosines, sines, 1.0F);
    x.unsafeGetTensorImpl()->bump_version();
    context->save_for_backward({cosines, sines});
    return packed.squeeze(3).transpose(1, 2);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor packed = gradients[0].transpose(1, 2).clone(at::MemoryFormat::Contiguous);
    rotate(packed.unsqueeze(3), saved[0], saved[1], -1.0F);
    return {packed.view({packed.size(0) * packed.size(1), -1}), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rotated_heads(const at::Tensor& x, std::int64_t batch, std::int64_t head_size, RotaryTable& table) {
  strata_check(x.dim() == 2 && x.size(0) % batch == 0 && x.size(1) % head_size == 0 && table.dimensions() <= head_size,
               "rotated_heads: x is [batch * positions, heads * head size]");
  const auto [cosines, sines] = table.at(x.size(0) / batch, x.device());
  return RotatedHeads::apply(x.contiguous(), cosines, sines, batch, head_size);
}

Heads split_heads(const at::Tensor& qkv, std::int64_t batch, std::int64_t heads, RotaryTable& table) {
  strata_check(qkv.dim() == 2 && qkv.size(0) % batch == 0 && qkv.size(1) % (3 * heads) == 0,
               "split_heads: qkv is [batch * positions, heads * 3 * head size]");
  strata_check(table.dimensions() <= qkv.size(1) / (3 * heads),
               "split_heads: no more dimensions rotate than a head has");
  const auto [cosines, sines] = table.at(qkv.size(0) / batch, qkv.device());
  const variable_list parts = SplitHeads::apply(qkv.contiguous(), cosines, sines, batch, heads);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor rotary_embedding(const at::Tensor& x, RotaryTable& table) {
  const auto [cosines, sines] = table.at(x.size(1), x.device());
  const std::int64_t half = table.dimensions() / 2;
  const at::Tensor cosine = cosines.unsqueeze(1), sine = sines.unsqueeze(1);
  const at::Tensor first = x.narrow(3, 0, half), second = x.narrow(3, half, half);
  const at::Tensor rest = x.narrow(3, 2 * half, x.size(3) - 2 * half);
  return at::cat({(first * cosine - second * sine).to(x.scalar_type()),
                  (second * cosine + first * sine).to(x.scalar_type()), rest},
                 3);
}

}  // namespace strata
