#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/error.hpp>
#include <strata/split_mix.hpp>
#include <strata/toolbox/dropout.hpp>

#include "floating_types.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// mix_bits() of int64 tensors, whose products wrap around and whose shifts copy the sign.
at::Tensor mixed(at::Tensor x) {
  const auto shifted = [](const at::Tensor& of, int bits) {
    return of.__rshift__(bits).bitwise_and((std::int64_t{1} << (64 - bits)) - 1);
  };
  x = x.bitwise_xor(shifted(x, 30)).mul(static_cast<std::int64_t>(mix_factors[0]));
  x = x.bitwise_xor(shifted(x, 27)).mul(static_cast<std::int64_t>(mix_factors[1]));
  return x.bitwise_xor(shifted(x, 31));
}

struct Draws {
  double probability;
  at::Tensor key;
  std::int64_t draw;
  std::int64_t first;
};

// The upper 24 bits of an element's number, below which it is dropped.
std::int64_t threshold(double probability) {
  return static_cast<std::int64_t>(probability * (1 << 24));
}

at::Tensor dropped(const at::Tensor& x, const Draws& draws) {
  const at::Tensor y = at::empty_like(x);
  if (x.is_meta()) return y;
  const double factor = 1.0 / (1.0 - draws.probability);
  const std::int64_t below = threshold(draws.probability);
  if (!x.is_cpu()) {
    const at::Tensor key = mixed(draws.key + draws.draw * static_cast<std::int64_t>(golden_ratio));
    const at::Tensor numbers = at::arange(draws.first + 1, draws.first + 1 + x.numel(), draws.key.options())
                                   .mul(static_cast<std::int64_t>(golden_ratio));
    const at::Tensor upper = mixed(numbers + key).__rshift__(40).bitwise_and((1 << 24) - 1);
    return x * upper.ge(below).view(x.sizes()) * factor;
  }
  const std::uint64_t key = mix_bits(static_cast<std::uint64_t>(draws.key.item<std::int64_t>()) +
                                     static_cast<std::uint64_t>(draws.draw) * golden_ratio);
  with_types_of(x, [&]<class Scalar, class Wide>(Scalar, Wide) {
    const Scalar* const from = x.const_data_ptr<Scalar>();
    Scalar* const into = y.mutable_data_ptr<Scalar>();
    at::parallel_for(0, x.numel(), 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint64_t bits = mix_bits(static_cast<std::uint64_t>(draws.first + 1 + i) * golden_ratio + key);
        const bool dropped = static_cast<std::int64_t>(bits >> 40) < below;
        into[i] = dropped ? Scalar(0) : static_cast<Scalar>(static_cast<Wide>(from[i]) * static_cast<Wide>(factor));
      }
    });
  });
  return y;
}

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Draws& draws) {
    context->saved_data["probability"] = draws.probability;
    context->saved_data["key"] = draws.key;
    context->saved_data["draw"] = draws.draw;
    context->saved_data["first"] = draws.first;
    return dropped(x, draws);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    return {dropped(gradients[0].contiguous(), {saved["probability"].toDouble(), saved["key"].toTensor(),
                                                saved["draw"].toInt(), saved["first"].toInt()}),
            {}};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, const at::Tensor& key, std::int64_t draw,
                   std::int64_t first) {
  strata_check(probability >= 0.0 && probability < 1.0, "dropout: a probability below 1");
  if (probability == 0.0) return x;
  return Dropout::apply(x.contiguous(), Draws{probability, key, draw, first});
}

}  // namespace strata
