// fp16 and bf16 on the host's processors: where products and attention are in fp32, they are rounded once.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/toolbox/attention.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/product.hpp>
#include <strata/toolbox/reduction.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "catch.hpp"
#include "unit/model/counting_allocator.hpp"
#include "widened_product.hpp"

namespace {

// Those whose products are in fp32 on this processor.
std::vector<at::ScalarType> widened() {
  std::vector<at::ScalarType> dtypes;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16})
    if (strata::multiplied_in_fp32(at::empty({0}, dtype))) dtypes.push_back(dtype);
  return dtypes;
}

// The most by which rounding changes a number of the dtype, relative.
double rounding(at::ScalarType dtype) {
  return std::ldexp(1.0, dtype == at::kHalf ? -11 : -8);
}

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape).to(dtype);
}
at::Tensor leaf_of(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

// Whether `found` is left right but for one rounding to their dtype, and fp32's roundings of as many sums as there are
// terms.
bool is_product(const at::Tensor& found, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = {}) {
  const at::Tensor x = left.to(at::kDouble), y = right.to(at::kDouble);
  at::Tensor exact = at::mm(x, y), terms = at::mm(x.abs(), y.abs());
  if (bias.defined()) {
    exact = exact + bias.to(at::kDouble);
    terms = terms + bias.to(at::kDouble).abs();
  }
  const at::ScalarType dtype = left.scalar_type();
  const double smallest = std::ldexp(1.0, dtype == at::kHalf ? -25 : -134), fp32 = std::ldexp(1.0, -24);
  const at::Tensor sums = terms * (fp32 * static_cast<double>(left.size(1) + 2));
  const at::Tensor allowed = (exact.abs() + sums) * rounding(dtype) + smallest + sums;
  return found.scalar_type() == dtype && found.sizes() == exact.sizes() &&
         ((found.to(at::kDouble) - exact).abs() <= allowed).all().item<bool>();
}

struct Extents {
  std::int64_t rows, inner, columns;
};
const std::vector<Extents> all_extents{{1, 1, 1},     {3, 5, 7},       {2, 0, 3},      {0, 4, 3},
                                       {767, 3, 769}, {768, 768, 768}, {5, 1537, 800}, {1600, 769, 2}};

// The least time of one over that of the other, in turns; more turns while it is above `most`, as other work on the
// machine lengthens times but never shortens them.
double least_ratio(const std::function<void()>& one, const std::function<void()>& other, double most) {
  const auto timed = [](const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  one(), other();
  double least = timed(one), least_of_other = timed(other);
  for (int turn = 0; turn < 4 || (turn < 100 && least > most * least_of_other); ++turn) {
    least = std::min(least, timed(one));
    least_of_other = std::min(least_of_other, timed(other));
  }
  return least / least_of_other;
}

void check_attention(at::ScalarType dtype) {
  for (const std::int64_t positions : {1, 7, 65, 300, 900}) {  // 300: two samples at a time; 900: two heads
    CAPTURE(dtype, positions);
    std::vector<at::Tensor> narrow, wide;
    // As split_heads gives them: views of one tensor.
    const at::Tensor packed = random({3, positions, 3, 3, 8}, dtype);
    for (std::int64_t part = 0; part < 3; ++part) {
      narrow.push_back(leaf_of(packed.select(3, part)));
      wide.push_back(leaf_of(narrow.back().to(at::kFloat)));
    }
    const auto heads = [](const at::Tensor& tensor) { return tensor.transpose(1, 2); };
    const at::Tensor y = strata::attention(heads(narrow[0]), heads(narrow[1]), heads(narrow[2]));
    const at::Tensor exact = strata::attention(heads(wide[0]), heads(wide[1]), heads(wide[2]));
    const at::Tensor seed = random(y.sizes(), dtype);
    torch::autograd::backward({y}, {seed});
    torch::autograd::backward({exact}, {seed.to(at::kFloat)});
    CHECK(y.scalar_type() == dtype);
    CHECK(y.strides() == exact.strides());
    // The result is rounded once, and so are gradients, whose largest terms are of a rounded result.
    CHECK((y.to(at::kFloat) - exact).abs().max().item<double>() <=
          1.01 * rounding(dtype) * exact.abs().max().item<double>());
    const auto largest = [](const at::Tensor& tensor) { return tensor.abs().max().item<double>(); };
    for (std::size_t i = 0; i < 3; ++i) {
      // Among one position the softmax is 1 whatever the scores, so queries and keys have no gradient. What is found is
      // the difference of two fp32 sums of the same 8 products, in whatever order the processor adds.
      const bool none = positions == 1 && i < 2;
      const double noise =
          none ? 2 * 8 * std::ldexp(1.0, -24) * 8 * largest(seed) * largest(wide[2]) * largest(wide[1 - i]) : 0.0;
      if (none) CHECK(largest(wide[i].grad()) <= noise);
      CHECK(largest(narrow[i].grad().to(at::kFloat) - wide[i].grad()) <=
            4 * rounding(dtype) * largest(wide[i].grad()) + 2 * noise);
    }
  }
}

}  // namespace

TEST_CASE("a 16-bit product is the fp32 product rounded once") {
  at::manual_seed(3);
  for (const at::ScalarType dtype : widened())
    for (const auto& [rows, inner, columns] : all_extents) {
      CAPTURE(dtype, rows, inner, columns);
      const at::Tensor left = random({rows, inner}, dtype), right = random({inner, columns}, dtype);
      CHECK(is_product(strata::product(left, right), left, right));
      // Transposed, and a part of something wider.
      const at::Tensor turned = random({inner, rows}, dtype).t(),
                       part = random({inner, columns + 3}, dtype).narrow(1, 2, columns);
      const at::Tensor result = at::full({rows, columns + 1}, 7.0, dtype);
      strata::product_out(result.narrow(1, 0, columns), turned, part);
      CHECK(is_product(result.narrow(1, 0, columns), turned, part));
      CHECK((result.narrow(1, columns, 1) == 7.0).all().item<bool>());
    }
  // Beyond fp16 is infinite, as the loss scale needs to see; in between is not, as sums are fp32.
  const at::Tensor large = at::full({1, 4}, 240.0, at::kHalf);
  CHECK(std::isinf(strata::product(large, large.t()).item<float>()));
  const at::Tensor signs = at::tensor({1.0F, 1.0F, -1.0F, -1.0F}).to(at::kHalf).view({4, 1});
  CHECK(strata::product(large * 240.0, signs).item<float>() == 0.0F);
}

TEST_CASE("a 16-bit product is added to a target of its type") {
  at::manual_seed(3);
  for (const at::ScalarType dtype : widened()) {
    const at::Tensor left = random({1030, 9}, dtype), right = random({9, 5}, dtype);
    const at::Tensor target = at::ones({1030, 5}, dtype);
    strata::add_product(target, left, right);
    CHECK(at::equal(target, at::ones({1030, 5}, dtype).add_(strata::product(left, right))));
  }
}

namespace {

// add_product() of a target in fp32.
void check_wide_sums(at::ScalarType dtype, bool rounds) {
  for (const auto& [rows, inner, columns] : all_extents)
    for (const bool first : {false, true}) {
      CAPTURE(dtype, rows, inner, columns, first);
      const at::Tensor left = random({inner, rows}, dtype).t(),
                       right = random({inner, columns + 3}, dtype).narrow(1, 2, columns);
      const at::Tensor all = at::ones({rows, columns + 1}), target = all.narrow(1, 0, columns);
      strata::add_product(target, left, right, first);
      const at::Tensor x = left.to(at::kDouble), y = right.to(at::kDouble), exact = at::mm(x, y);
      const at::Tensor sums = (at::mm(x.abs(), y.abs()) + 1) * std::ldexp(static_cast<double>(inner + 2), -24);
      const at::Tensor off = (target.to(at::kDouble) - exact - (first ? 0.0 : 1.0)).abs();
      CHECK((off <= sums + (rounds ? exact.abs() * rounding(dtype) : at::zeros({}))).all().item<bool>());
      CHECK((all.narrow(1, columns, 1) == 1.0).all().item<bool>());
      const auto taken = [&](c10::DeviceType device,
                             const std::function<void(const at::Tensor&, const at::Tensor&)>& by) {
        const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
        const at::Tensor dy = at::empty({inner, rows}, options), input = at::empty({inner, columns}, options);
        CountingAllocator counted(device);
        by(dy.t(), input);
        return counted.most;
      };
      const auto added = [&](c10::DeviceType device) {
        const at::Tensor into = at::zeros({rows, columns}, at::TensorOptions().device(device));
        return taken(device, [&](const at::Tensor& turned, const at::Tensor& input) {
          strata::add_product(into, turned, input, first);
        });
      };
      std::int64_t expected = added(c10::DeviceType::Meta);
      // libtorch multiplies the parts that are rounded, with working memory of its own, which no dry run sees.
      for (std::int64_t begin = 0; rounds && begin < rows; begin += 768)
        expected =
            std::max(expected, taken(c10::DeviceType::CPU, [&](const at::Tensor& turned, const at::Tensor& input) {
                       at::mm(turned.narrow(0, begin, std::min<std::int64_t>(768, rows - begin)), input);
                     }));
      CHECK(added(c10::DeviceType::CPU) == expected);
    }
}

}  // namespace

TEST_CASE("a 16-bit product is added to fp32 unrounded if it is in fp32, or if MKL adds bf16 products") {
  at::manual_seed(3);
  bool mkl_adds = false;
#if defined(__x86_64__)
  mkl_adds = at::hasMKL() && __builtin_cpu_is("intel") != 0;
#endif
  check_wide_sums(at::kHalf, false);
  check_wide_sums(at::kBFloat16, !mkl_adds && !strata::multiplied_in_fp32(at::empty({0}, at::kBFloat16)));
}

TEST_CASE("a 16-bit product in fp32 takes no tensor beside its result") {
  for (const at::ScalarType dtype : widened())
    for (const auto& [rows, inner, columns] : {Extents{1700, 1600, 2000}, {7, 1300, 40}})
      for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::Meta}) {
        const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
        const at::Tensor left = at::ones({rows, inner}, options), right = at::ones({inner, columns}, options);
        CountingAllocator counted(device);
        const at::Tensor result = strata::product(left, right);
        CHECK(counted.most == static_cast<std::int64_t>(result.nbytes()));
      }
}

TEST_CASE("a 16-bit product in fp32 is right with every kind of vector code that this processor has") {
  at::manual_seed(4);
  for (int code = 0; code <= static_cast<int>(strata::widest_vectors()); ++code)
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16})
      for (const auto& [rows, inner, columns] : all_extents)
        for (const bool by_columns : {false, true}) {
          CAPTURE(code, dtype, rows, inner, columns, by_columns);
          const auto some = [&](std::int64_t m, std::int64_t n) {
            return by_columns ? random({n, m + 1}, dtype).narrow(1, 1, m).t() : random({m, n}, dtype);
          };
          const at::Tensor left = some(rows, inner), right = some(inner, columns), bias = random({columns}, dtype);
          const at::Tensor result = at::empty({rows, columns}, dtype), wide = bias.to(at::kFloat).repeat({rows, 1});
          const auto vectors = static_cast<strata::Vectors>(code);
          strata::widened_product(result, left, right, bias, false, vectors);
          CHECK(is_product(result, left, right, bias));
          const at::Tensor turned = at::empty({columns, rows}, dtype).t();
          strata::widened_product(turned, left, right, bias, false, vectors);
          CHECK(at::equal(turned, result));
          strata::widened_product(wide, left, right, {}, true, vectors);
          CHECK(is_product(wide.to(dtype), left, right, bias));
        }
}

TEST_CASE("numbers of 16 bits are widened and rounded in products as they are elsewhere") {
  const auto same = [](const at::Tensor& found, const at::Tensor& expected) {
    return at::equal(found.isnan(), expected.isnan()) && at::equal(found.nan_to_num(0), expected.nan_to_num(0));
  };
  const at::Tensor all = at::arange(65536, at::kInt);
  // fp32 numbers of every sign, exponent and first bits; the last 16 bits are at, and beside, halves of both formats.
  std::vector<at::Tensor> bits;
  for (const int last : {0, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF})
    bits.push_back(all.bitwise_left_shift(16).bitwise_or(last));
  const at::Tensor exact = at::cat(bits).view(at::kFloat);
  for (int code = 0; code <= static_cast<int>(strata::widest_vectors()); ++code)
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      CAPTURE(code, dtype);
      const auto vectors = static_cast<strata::Vectors>(code);
      const at::Tensor every = all.to(at::kShort).view(dtype), wide = every.to(at::kFloat);
      const at::Tensor finite = at::where(wide.isfinite(), wide, at::zeros({})).view({256, 256});
      const at::Tensor column = at::empty({65536, 1}), square = at::empty({256, 256});
      // Alone, by rows, and by columns.
      strata::widened_product(column, every.view({65536, 1}), at::ones({1, 1}, dtype), {}, false, vectors);
      CHECK(same(column, wide.view({65536, 1})));
      const at::Tensor one = at::eye(256, at::TensorOptions().dtype(dtype)), numbers = finite.to(dtype);
      for (const bool by_columns : {false, true}) {
        const at::Tensor matrix = by_columns ? numbers.t() : numbers;
        strata::widened_product(square, matrix, one, {}, false, vectors);
        CHECK(same(square, matrix.to(at::kFloat)));
        strata::widened_product(square, one, matrix, {}, false, vectors);
        CHECK(same(square, matrix.to(at::kFloat)));
      }
      // Rounded: `exact` and a product of zeros.
      const at::Tensor rounded = at::empty({8, exact.numel()}, dtype);
      strata::widened_product(rounded, at::zeros({8, 1}, dtype), at::zeros({1, exact.numel()}, dtype), exact, false,
                              vectors);
      CHECK(same(rounded.to(at::kFloat), exact.to(dtype).to(at::kFloat).expand({8, exact.numel()})));
    }
}

TEST_CASE("a 16-bit product in fp32 has the same bits with any number of threads") {
  at::manual_seed(5);
  const int threads = at::get_num_threads();
  for (const auto& [rows, inner, columns] : {Extents{300, 600, 1000}, {1000, 600, 300}}) {
    const at::Tensor left = random({rows, inner}, at::kHalf), right = random({inner, columns}, at::kHalf);
    std::vector<at::Tensor> results;
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      results.push_back(strata::product(left, right));
    }
    at::set_num_threads(threads);
    CHECK(at::equal(results[0], results[1]));
    CHECK(at::equal(results[0], results[2]));
  }
}

TEST_CASE("a linear in 16 bits and its gradients are products rounded once") {
  at::manual_seed(3);
  for (const at::ScalarType dtype : widened())
    for (const auto& [rows, inner, columns] : all_extents) {
      if (rows * inner == 0) continue;
      for (const bool biased : {false, true}) {
        CAPTURE(dtype, rows, inner, columns, biased);
        const at::Tensor x = leaf_of(random({1, rows, inner}, dtype)), w = leaf_of(random({columns, inner}, dtype));
        const at::Tensor b = biased ? leaf_of(random({columns}, dtype)) : at::Tensor();
        const at::Tensor y = strata::linear(x, w, b), seed = random({1, rows, columns}, dtype);
        CHECK(is_product(y.detach()[0], x.detach()[0], w.detach().t(), biased ? b.detach() : at::Tensor()));
        torch::autograd::backward({y}, {seed});
        CHECK(is_product(x.grad()[0], seed[0], w.detach()));
        CHECK(is_product(w.grad(), seed[0].t(), x.detach()[0]));
        if (biased) CHECK(is_product(b.grad().view({1, columns}), at::ones({1, rows}, dtype), seed[0]));
      }
    }
  // A frozen weight gets no gradient; a frozen input does not either.
  const at::Tensor x = leaf_of(random({3, 4}, at::kHalf)), w = random({5, 4}, at::kHalf);
  torch::autograd::backward({strata::linear(x, w, {}).sum()}, {});
  CHECK(x.grad().defined());
  const at::Tensor trained = leaf_of(w);
  torch::autograd::backward({strata::linear(x.detach(), trained, {}).sum()}, {});
  CHECK(trained.grad().defined());
  CHECK_FALSE(strata::linear(x.detach(), w, {}).requires_grad());
}

TEST_CASE("attention in 16 bits is that of fp32, rounded") {
  at::manual_seed(3);
  for (const at::ScalarType dtype : widened()) check_attention(dtype);
}

// In libtorch these take 7 to 60 times the time of fp32 where a processor has no arithmetic of the dtype.
TEST_CASE("16 bits take at most twice the time of fp32", "[.speed]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // their times say nothing
#endif
  at::manual_seed(3);
  const at::ScalarType narrow = GENERATE(at::kHalf, at::kBFloat16);
  CAPTURE(narrow);
  const auto both = [&](const std::function<std::function<void()>(at::ScalarType)>& make) {
    return least_ratio(make(narrow), make(at::kFloat), 2.0);
  };
  CHECK(both([](at::ScalarType dtype) -> std::function<void()> {
          const at::Tensor x = leaf_of(at::randn({512, 256}).to(dtype)), w = leaf_of(at::randn({512, 256}).to(dtype));
          const at::Tensor b = leaf_of(at::randn({512}).to(dtype)), seed = at::ones({512, 512}, dtype);
          return [=] { torch::autograd::backward({strata::linear(x, w, b)}, {seed}); };
        }) < 2.0);
  CHECK(both([](at::ScalarType dtype) -> std::function<void()> {
          const at::Tensor q = leaf_of(at::randn({1, 4, 512, 32}).to(dtype)), seed = at::ones({1, 4, 512, 32}, dtype);
          return [=] { torch::autograd::backward({strata::attention(q, q, q)}, {seed}); };
        }) < 2.0);
  CHECK(both([](at::ScalarType dtype) -> std::function<void()> {
          const at::Tensor x = leaf_of(at::randn({512, 128}).to(dtype)), w = leaf_of(at::randn({4096, 128}).to(dtype));
          const at::Tensor targets = at::zeros({512}, at::kLong);
          return [=] { torch::autograd::backward({strata::linear_cross_entropy(x, w, targets).loss}, {}); };
        }) < 2.0);
  CHECK(both([](at::ScalarType dtype) -> std::function<void()> {
          const at::Tensor a = random({1 << 20}, dtype), b = random({1 << 20}, dtype), sum = at::empty_like(a);
          return [=] {
            strata::reduce_in_rank_order(
                static_cast<std::byte*>(sum.data_ptr()),
                {static_cast<const std::byte*>(a.const_data_ptr()), static_cast<const std::byte*>(b.const_data_ptr())},
                a.numel(), {dtype, strata::Fold::Sum});
          };
        }) < 2.0);
}
