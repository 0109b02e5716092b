#include "precision/linear_cases.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/precision_policy.hpp>

#include <array>
#include <string>

#include "precision/scripts.hpp"

namespace strata::conformance {

namespace {

using Shape = std::vector<std::int64_t>;

std::string to_string(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return "[" + text + "]";
}

// Of three significant bits, from 1/8 to 2 with either sign, and 0: the same numbers in every format down to 8 bits.
at::Tensor drawn(const Shape& shape, std::mt19937_64& random, at::ScalarType dtype) {
  static constexpr std::array eighths{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};
  at::Tensor values = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  double* const data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    data[i] = (random() % 2 == 0 ? 0.125 : -0.125) * eighths[random() % eighths.size()];
  return values.to(dtype);
}

// The distance from 1 to the next number.
double precision_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0x1p-52;
    case at::kFloat:
      return 0x1p-23;
    case at::kHalf:
      return 0x1p-10;
    case at::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-2;  // formats of 8 bits
  }
}

const ParameterInfo weight_of_a_layer{"layers.0.weight", {8, 8}};

struct Sizes {
  Shape batch;
  std::int64_t in;
  std::int64_t out;
};
// The last adds up thousands of numbers of one sign, which an accumulator of 16 bits cannot.
const std::vector<Sizes> all_sizes{{{5}, 7, 3},    {{2, 3}, 16, 8},    {{1}, 1, 1},
                                   {{4}, 33, 129}, {{2, 1, 3}, 8, 24}, {{2}, 3000, 5}};

// One product and what it was made of.
struct Product {
  at::Tensor x, b;  // b undefined without bias
  Parameter w;
  at::Tensor y;
};

Shape with(Shape batch, std::int64_t last) {
  batch.push_back(last);
  return batch;
}

Product multiply(PrecisionPolicy& policy, const Sizes& sizes, bool bias, at::ScalarType weights,
                 std::mt19937_64& random) {
  Product product;
  const bool one_sign = sizes.in > 1000;
  const auto factor = [&](const Shape& shape, at::ScalarType dtype) {
    const at::Tensor values = drawn(shape, random, dtype);
    return one_sign ? values.abs() : values;
  };
  product.x = factor(with(sizes.batch, sizes.in), policy.activation());
  product.w = {weight_of_a_layer, factor({sizes.out, sizes.in}, weights)};
  product.w.info.shape = {sizes.out, sizes.in};
  if (bias) product.b = drawn({sizes.out}, random, weights);
  product.y = policy.linear(product.x, product.w, product.b);
  return product;
}

// |found - expected| <= bound x scale, element by element. `scale` is what the sum's terms add up to without their
// signs: rounding errors are in proportion to it. `bound` is of the format, or what the plugin's equivalence allows if
// that is more.
void compare(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& scale, double bound,
             const std::string& what) {
  require(found.defined(), what + " is undefined");
  require(found.sizes() == expected.sizes(),
          what + " has the shape " + to_string(found.sizes().vec()) + ", not " + to_string(expected.sizes().vec()));
  const at::Tensor error = (found.to(at::kDouble) - expected).abs();
  const double worst = (error - scale * bound).max().item<double>();
  require(worst <= 0.0, what + " is off by up to " + std::to_string(error.max().item<double>()) +
                            " from the product in fp64, more than "
                            "its number format allows");
}

double bound_of(Subject& subject, at::ScalarType dtype, std::int64_t terms) {
  const plugin_host::Equivalence& equivalence = subject.manifest().equivalence;
  const double own = equivalence.kind == plugin_host::Equivalence::Kind::Tolerance ? equivalence.bound : 0.0;
  // One rounding of the result, and one of each partial sum in the accumulator, which is at least fp32.
  const double accumulator = std::min(precision_of(dtype), precision_of(at::kFloat));
  return std::max(own, precision_of(dtype) + static_cast<double>(terms + 2) * accumulator);
}

void each_product(
    Subject& subject, std::string_view case_name,
    const std::function<void(PrecisionPolicy&, const Product&, const Sizes&, const std::string&)>& check) {
  if (subject.manifest().equivalence.kind == plugin_host::Equivalence::Kind::Simulated)
    throw Skip("the plugin promises the results of " + subject.manifest().equivalence.reference +
               ", which the kit cannot run");
  std::mt19937_64 random = subject.random(case_name);
  each_setting(subject, [&](const fakes::OptionTexts& setting) {
    auto policy = subject.make<PrecisionPolicy>(setting);
    const at::ScalarType weights = policy->dtypes(weight_of_a_layer).parameter;
    for (const Sizes& sizes : all_sizes) {
      for (const bool bias : {false, true}) {
        const std::string where = "x " + to_string(with(sizes.batch, sizes.in)) + ", w " +
                                  to_string({sizes.out, sizes.in}) + (bias ? " with bias: " : " without bias: ");
        try {
          check(*policy, multiply(*policy, sizes, bias, weights, random), sizes, where);
        } catch (const Failure&) {
          throw;
        } catch (const std::exception& error) {
          throw Failure(where + error.what());
        }
      }
    }
  });
}

void linear_is_the_product(Subject& subject) {
  each_product(subject, "precision.linear",
               [&](PrecisionPolicy& policy, const Product& product, const Sizes& sizes, const std::string& where) {
                 const c10::NoGradGuard no_grad;
                 const at::Tensor x = product.x.to(at::kDouble), w = product.w.tensor.to(at::kDouble);
                 at::Tensor expected = at::matmul(x, w.t());
                 at::Tensor scale = at::matmul(x.abs(), w.abs().t());
                 if (product.b.defined()) {
                   expected = expected + product.b.to(at::kDouble);
                   scale = scale + product.b.to(at::kDouble).abs();
                 }
                 require(product.y.scalar_type() == policy.activation(),
                         where + "the result is " + c10::toString(product.y.scalar_type()) + ", but activation() is " +
                             c10::toString(policy.activation()));
                 compare(product.y, expected, scale, bound_of(subject, product.y.scalar_type(), sizes.in),
                         where + "the result");
               });
}

void linear_has_gradients(Subject& subject) {
  std::mt19937_64 seeds = subject.random("precision.linear_gradients.seeds");
  each_product(subject, "precision.linear_gradients",
               [&](PrecisionPolicy& policy, const Product& product, const Sizes& sizes, const std::string& where) {
                 const at::Tensor rows = product.x.reshape({-1, sizes.in});
                 const at::Tensor seed = drawn({rows.size(0), sizes.out}, seeds, product.y.scalar_type());
                 const at::Tensor dy = seed.to(at::kDouble), x = rows.to(at::kDouble),
                                  w = product.w.tensor.to(at::kDouble);
                 const at::Tensor dx = policy.input_gradient(seed, product.w);
                 compare(dx, at::matmul(dy, w), at::matmul(dy.abs(), w.abs()),
                         bound_of(subject, product.x.scalar_type(), sizes.out), where + "the gradient of x");
                 require(dx.scalar_type() == product.x.scalar_type(),
                         where + "the gradient of x is " + c10::toString(dx.scalar_type()) + ", and x is " +
                             c10::toString(product.x.scalar_type()));
                 // Of two micro-batches: the second is added to the first.
                 const at::ScalarType dtype = policy.dtypes(weight_of_a_layer).gradient;
                 const at::Tensor into = at::zeros({sizes.out, sizes.in}, at::TensorOptions().dtype(dtype));
                 for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
                   policy.add_weight_gradient(seed, rows, product.w.info, into);
                 compare(into, at::matmul(dy.t(), x) * 2.0, at::matmul(dy.abs().t(), x.abs()) * 2.0,
                         bound_of(subject, product.w.tensor.scalar_type(), rows.size(0)) + 2.0 * precision_of(dtype),
                         where + "the sum of two equal gradients of w");
               });
}

}  // namespace

std::vector<Case> linear_cases() {
  return {
      {"precision.linear", "linear() matches the product in fp64 up to its format's rounding.", linear_is_the_product},
      {"precision.linear_gradients",
       "input_gradient() matches the product in fp64, and add_weight_gradient() adds the one it computes.",
       linear_has_gradients},
  };
}

}  // namespace strata::conformance
