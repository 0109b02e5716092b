#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <strata/error.hpp>
#include <strata/toolbox/by_rows.hpp>

#include <algorithm>
#include <utility>

namespace strata {
namespace {

using RowFunction = std::function<at::Tensor(const at::Tensor&)>;

struct HeldFunction : torch::CustomClassHolder {
  explicit HeldFunction(RowFunction f) : function(std::move(f)) {}
  RowFunction function;
};

void for_each_chunk(std::int64_t rows, std::int64_t chunk,
                    const std::function<void(std::int64_t begin, std::int64_t count)>& visit) {
  for (std::int64_t begin = 0; begin < rows; begin += chunk) visit(begin, std::min(chunk, rows - begin));
}

class ByRows : public torch::autograd::Function<ByRows> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*weight*/, std::int64_t chunk, const RowFunction& f) {
    context->save_for_backward({x});
    context->saved_data["chunk"] = chunk;
    context->saved_data["function"] = at::IValue::make_capsule(c10::make_intrusive<HeldFunction>(f));
    at::Tensor y;
    for_each_chunk(x.size(0), chunk, [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor part = f(x.narrow(0, begin, count));
      if (!y.defined()) y = part.new_empty({x.size(0), part.size(1)});
      y.narrow(0, begin, count).copy_(part);
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0], &dy = gradients[0];
    const auto held = context->saved_data["function"].toCapsule();
    const RowFunction& f = static_cast<const HeldFunction&>(*held).function;
    at::Tensor dx;
    for_each_chunk(x.size(0), context->saved_data["chunk"].toInt(), [&](std::int64_t begin, std::int64_t count) {
      const at::AutoGradMode grad(true);
      const at::Tensor part = x.narrow(0, begin, count).detach().set_requires_grad(true);
      const at::Tensor y = f(part);
      torch::autograd::backward({y}, {dy.narrow(0, begin, count)});
      const c10::NoGradGuard no_grad;
      if (!dx.defined()) dx = at::empty_like(x);
      dx.narrow(0, begin, count).copy_(part.grad());
    });
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor by_rows(const at::Tensor& x, std::int64_t chunk, const at::Tensor& weight, const RowFunction& f) {
  if (chunk <= 0 || chunk >= x.size(0)) return f(x);
  return ByRows::apply(x, weight, chunk, f);
}

}  // namespace strata
