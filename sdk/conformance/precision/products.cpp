// Drawn products of a precision policy, compared with those in fp64 and those of an instance that is saved and loaded.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>
#include <strata/fakes/run_context.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/model.hpp>

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "conformance/precision/checks.hpp"

namespace strata::conformance::precision_checks {

namespace {

using Shape = std::vector<std::int64_t>;

std::string to_string(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return "[" + text + "]";
}

// Of three significant bits, from 1/8 to 2 with either sign, and 0: the same numbers in every format down to 8 bits.
at::Tensor values_of(const Shape& shape, std::uint64_t key, at::ScalarType dtype) {
  static constexpr std::array eighths{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16};
  at::Tensor values = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  double* const data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::uint64_t drawn = mixed(key, static_cast<std::uint64_t>(i));
    data[i] = (drawn % 2 == 0 ? 0.125 : -0.125) * eighths[drawn / 2 % eighths.size()];
  }
  // The largest is there every time: a policy may scale by what earlier steps measured.
  if (values.numel() > 0) data[0] = 2.0;
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

// |found - expected| <= bound x scale, element by element. `scale` is the sum of the terms without their
// signs: rounding errors are in proportion to it. `bound` is of the format, or what the plugin's equivalence allows if
// that is more.
void compare(const at::Tensor& found, const at::Tensor& expected, const at::Tensor& scale, double bound,
             const std::string& what) {
  require(found.defined(), what + " is undefined");
  require(found.sizes() == expected.sizes(),
          what + " has the shape " + to_string(found.sizes().vec()) + ", not " + to_string(expected.sizes().vec()));
  const at::Tensor error = (found.to(at::kDouble) - expected).abs();
  const double worst = (error - scale * bound).max().item<double>();
  require(worst <= 0.0, format("{} is off by up to {} from the product in fp64, more than its number format allows",
                               what, error.max().item<double>()));
}

double bound_of(Subject& subject, at::ScalarType dtype, std::int64_t terms) {
  const plugins::Equivalence& equivalence = subject.manifest().equivalence;
  const double own = equivalence.kind == plugins::Equivalence::Kind::Tolerance ? equivalence.bound : 0.0;
  // One rounding of the result, and one of each partial sum in the accumulator, which is at least fp32.
  const double accumulator = std::min(precision_of(dtype), precision_of(at::kFloat));
  return std::max(own, precision_of(dtype) + static_cast<double>(terms + 2) * accumulator);
}

// One layer's weight and the operands of its products.
struct Weight {
  Parameter w;
  at::Tensor b;                      // undefined without bias
  at::Tensor into, gradient, scale;  // the plugin's sum of gradients, that in fp64, and its terms without their signs
  at::Tensor again;                  // the sum of the second instance
  std::int64_t terms = 0;
  int updates = 0;
};

ParameterInfo described(const std::string& name, const Shape& shape) {
  ParameterInfo info;
  info.name = name;
  info.shape = shape;
  info.linear_only = true;
  return info;
}

// A product of a forward, whose gradients come later, in any order.
struct Product {
  std::size_t weight = 0;
  at::Tensor x;  // [rows, in]
};

// A policy in a run over these layers.
struct Instance {
  Instance(Subject& subject, const fakes::OptionTexts& options, const std::vector<LayerInfo>& layers)
      : policy(subject.make<PrecisionPolicy>(options)) {
    policy->run_begins(run);
    policy->attach(layers);
  }
  fakes::FakeRunContext run;
  fakes::LoadedPlugin<PrecisionPolicy> policy;
};

// Two instances are given the same; from one step to the next the second may be saved and loaded.
class Products {
 public:
  Products(Subject& subject, const fakes::OptionTexts& options, Draws& draws)
      : subject_(subject), options_(options), draws_(draws) {
    dtypes_ = subject.make<PrecisionPolicy>(options)->dtypes(described("layers.0.weight", {8, 8}));
    rows_ = draws.size(130);
    const auto count = draws.between(1, 3);
    const std::int64_t in = draws.size(400), out = draws.size(200);
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_alike = draws.chance(2);
      const Shape shape{is_alike ? out : draws.size(200), is_alike ? in : draws.size(3000)};
      Weight& weight = weights_.emplace_back();
      weight.w = {described("layers." + std::to_string(i) + ".weight", shape),
                  values_of(shape, next_++, dtypes_.parameter)};
      if (draws.chance(2)) weight.b = values_of({shape[0]}, next_++, dtypes_.parameter);
      weight.into = at::zeros(shape, at::TensorOptions().dtype(dtypes_.gradient));
      weight.again = at::zeros_like(weight.into);
      weight.gradient = at::zeros(shape, at::TensorOptions().dtype(at::kDouble));
      weight.scale = at::zeros_like(weight.gradient);
    }
    // Between others, as a policy may treat the first and last layers differently.
    const auto add = [&](ParameterInfo info) {
      layers_.push_back({.name = info.name, .parameters = {std::move(info)}});
    };
    for (const char* const name : {"first.weight", "second.weight"}) add(described(name, {8, 8}));
    for (const Weight& weight : weights_) add(weight.w.info);
    for (const char* const name : {"last_but_one.weight", "last.weight"}) add(described(name, {8, 8}));
    first_ = std::make_unique<Instance>(subject, options, layers_);
    second_ = std::make_unique<Instance>(subject, options, layers_);
    begin_step();
  }

  void forward() {
    const auto number = static_cast<std::size_t>(draws_.between(0, static_cast<std::int64_t>(weights_.size()) - 1));
    const Weight& weight = weights_[number];
    const at::Tensor& weights = weight.w.tensor;
    const std::int64_t in = weights.size(1), rows = draws_.chance(3) ? draws_.size(130) : rows_;
    Shape shape{rows, in};
    if (draws_.chance(3)) shape = {2, 1, rows, in};
    at::Tensor x = values_of(shape, next_++, policy().activation());
    if (draws_.chance(3)) x = x.abs();  // sums that an accumulator of 16 bits cannot hold
    const bool has_infinities = draws_.chance(6);
    is_finite_ = is_finite_ && !has_infinities;
    if (has_infinities) x.view({-1})[0].fill_(std::numeric_limits<double>::infinity());
    const std::string what = "linear() of x " + to_string(shape) + " and w " + to_string(weights.sizes().vec()) +
                             (weight.b.defined() ? " with bias" : "") +
                             (weight.updates > 0 ? ", which was updated before" : "") +
                             (has_infinities ? " with infinities in x" : "") + ": the result";
    const at::Tensor y = policy().linear(x, weight.w, weight.b);
    at::Tensor again = second().linear(x, weight.w, weight.b);
    if (draws_.chance(3)) again = second().linear(x, weight.w, weight.b);  // as where a layer is recomputed
    require(y.defined() && y.scalar_type() == policy().activation(),
            what + " is " + (y.defined() ? c10::toString(y.scalar_type()) : "undefined") + ", but activation() is " +
                c10::toString(policy().activation()));
    const at::Tensor wide = x.to(at::kDouble), w = weights.to(at::kDouble);
    at::Tensor expected = at::matmul(wide, w.t()), scale = at::matmul(wide.abs(), w.abs().t());
    if (weight.b.defined()) {
      expected = expected + weight.b.to(at::kDouble);
      scale = scale + weight.b.to(at::kDouble).abs();
    }
    if (has_infinities) {  // they show, or an overflow would go unnoticed
      require(!y.isfinite().logical_and(expected.isfinite().logical_not()).any().item<bool>(),
              what + " is finite where the product is not");
      return;
    }
    compare(y, expected, scale, bound_of(subject_, y.scalar_type(), in), what);
    require_same(y, again, what);
    products_.push_back({number, x.reshape({-1, in})});
  }

  void backward() {
    if (products_.empty()) return;
    const auto which = draws_.between(0, static_cast<std::int64_t>(products_.size()) - 1);
    const Product product = products_[static_cast<std::size_t>(which)];
    products_.erase(products_.begin() + which);
    const Weight& weight = weights_[product.weight];
    const at::Tensor seed = values_of({product.x.size(0), weight.w.tensor.size(0)}, next_++, policy().activation());
    const std::string what = "input_gradient() of dy " + to_string(seed.sizes().vec()) + ": the gradient of x";
    const at::Tensor dy = seed.to(at::kDouble), w = weight.w.tensor.to(at::kDouble);
    const at::Tensor dx = policy().input_gradient(seed, weight.w);
    compare(dx, at::matmul(dy, w), at::matmul(dy.abs(), w.abs()),
            bound_of(subject_, product.x.scalar_type(), w.size(0)), what);
    require(dx.scalar_type() == product.x.scalar_type(),
            what + " is " + c10::toString(dx.scalar_type()) + ", and x is " + c10::toString(product.x.scalar_type()));
    require_same(dx, second().input_gradient(seed, weight.w), what);
    waiting_.emplace_back(product, seed);
  }

  // Those of a split backward come later than other products' gradients of x.
  void weight_gradient() {
    if (waiting_.empty()) return;
    const auto which = draws_.between(0, static_cast<std::int64_t>(waiting_.size()) - 1);
    const auto [product, seed] = waiting_[static_cast<std::size_t>(which)];
    waiting_.erase(waiting_.begin() + which);
    Weight& weight = weights_[product.weight];
    const bool first = weight.terms == 0 && draws_.chance(2);
    if (first)  // what it holds then means nothing
      for (const at::Tensor& into : {weight.into, weight.again}) into.fill_(std::numeric_limits<double>::quiet_NaN());
    policy().add_weight_gradient(seed, product.x, weight.w.info, weight.into, first);
    second().add_weight_gradient(seed, product.x, weight.w.info, weight.again, first);
    const at::Tensor dy = seed.to(at::kDouble).t(), x = product.x.to(at::kDouble);
    weight.gradient = weight.gradient + at::matmul(dy, x);
    weight.scale = weight.scale + at::matmul(dy.abs(), x.abs());
    weight.terms += x.size(0);
    const double steps = 2.0 * precision_of(dtypes_.gradient);
    compare(weight.into, weight.gradient, weight.scale,
            bound_of(subject_, weight.w.tensor.scalar_type(), weight.terms) + steps,
            "the sum of the gradients of w " + to_string(weight.w.info.shape));
    require_same(weight.into, weight.again, "the sum of the gradients of w");
  }

  // The end of a step: weights are written in place, as the optimizer does it; what was computed with the old values is
  // over. False where the policy ends the run.
  bool update() {
    check_measured();
    const GradientHealth health{step_++, 1.0, is_finite_};
    const Verdict verdict = policy().judge(health);
    second().judge(health);
    if (verdict == Verdict::Stop) return false;
    if (draws_.chance(2)) {
      fakes::SavedState state;
      second().save(state);
      second_ = std::make_unique<Instance>(subject_, options_, layers_);
      second().load(state, second().state_version());
      second_says_ = "on an instance that was saved and loaded before";
    }
    begin_step();
    products_.clear();
    waiting_.clear();
    for (Weight& weight : weights_) {
      weight.w.tensor.copy_(values_of(weight.w.info.shape, next_++, weight.w.tensor.scalar_type()));
      ++weight.updates;
    }
    return true;
  }

 private:
  void begin_step() {
    is_finite_ = true;
    for (PrecisionPolicy* const one : {&policy(), &second()})
      if (const at::Tensor maxima = one->maxima(); maxima.defined()) maxima.zero_();
  }

  PrecisionPolicy& policy() const { return *first_->policy; }
  PrecisionPolicy& second() const { return *second_->policy; }

  void require_same(const at::Tensor& found, const at::Tensor& again, const std::string& what) const {
    require(again.defined() && at::equal(found, again),
            what + " has other bits " + second_says_ + "; it must depend only on the operands and the steps before");
  }

  void check_measured() const {
    const at::Tensor maxima = policy().maxima();
    if (!maxima.defined()) return;
    require(maxima.scalar_type() == at::kFloat && maxima.dim() == 1 && maxima.min().item<float>() >= 0.0F,
            "maxima() must be fp32 numbers in one dimension, none below 0");
    if (is_finite_) require_same(maxima, second().maxima(), "what maxima() measured");
  }

  Subject& subject_;
  fakes::OptionTexts options_;
  Draws& draws_;
  std::vector<LayerInfo> layers_;
  std::unique_ptr<Instance> first_, second_;
  std::string second_says_ = "when it is computed again, or by another instance";
  DTypes dtypes_;
  std::int64_t rows_ = 1;  // of most products
  std::int64_t step_ = 0;
  bool is_finite_ = true;  // all that the step multiplied so far
  std::vector<Weight> weights_;
  std::vector<Product> products_;
  std::vector<std::pair<Product, at::Tensor>> waiting_;
  std::uint64_t next_ = 1;
};

}  // namespace

bool products_are_right(Subject& subject, Draws& draws, const Tell& tell) {
  const c10::NoGradGuard no_grad;
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  std::optional<Products> products;
  try {
    products.emplace(subject, options, draws);
  } catch (const UserError&) {
    return false;  // it takes other options, or other layers
  }
  std::string course = "options: " + conformance::to_string(options) + ";";
  static const char* const names[] = {" linear", " input_gradient", " add_weight_gradient", " update"};
  for (auto calls = draws.between(1, 20); calls > 0; --calls) {
    const std::int64_t call = draws.between(0, 3);
    tell(course += names[call]);
    if (call == 0) products->forward();
    if (call == 1) products->backward();
    if (call == 2) products->weight_gradient();
    if (call == 3 && !products->update()) return true;
  }
  return true;
}

}  // namespace strata::conformance::precision_checks
