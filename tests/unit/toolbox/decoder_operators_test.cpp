// What decoders are made of beside plain operators: each against the plain operators, in values and gradients.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/fakes/local_group.hpp>
#include <strata/toolbox/attention.hpp>
#include <strata/toolbox/dropout.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/rms_norm.hpp>
#include <strata/toolbox/swiglu.hpp>

#include <cmath>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype = at::kDouble) {
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).to(dtype).set_requires_grad(true);
}

// The largest difference of results and of gradients, over the largest of each.
double apart(const Function& ours, const Function& plain, const std::vector<at::Tensor>& inputs) {
  const at::Tensor y = ours(inputs), expected = plain(inputs);
  const at::Tensor seed = at::randn_like(expected.detach());
  const auto gradients = torch::autograd::grad({y}, inputs, {seed.to(y.scalar_type())});
  const auto wanted = torch::autograd::grad({expected}, inputs, {seed});
  const auto difference = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / b.to(at::kDouble).abs().max()).item<double>();
  };
  double worst = difference(y.detach(), expected.detach());
  for (std::size_t i = 0; i < inputs.size(); ++i) worst = std::max(worst, difference(gradients[i], wanted[i]));
  return worst;
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t of_group = q.size(1) / k.size(1), positions = q.size(2);
  const at::Tensor keys = k.repeat_interleave(of_group, 1), values = v.repeat_interleave(of_group, 1);
  const at::Tensor scores = at::matmul(q, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor future = at::ones({positions, positions}, at::kBool).triu(1);
  return at::matmul(at::softmax(scores.masked_fill(future, -INFINITY), -1), values);
}

}  // namespace

TEST_CASE("rms_norm is x over the root of its mean square") {
  at::manual_seed(1);
  const auto [rows, n] = GENERATE(table<std::int64_t, std::int64_t>({{1, 2}, {3, 7}, {100, 64}, {33, 129}}));
  CAPTURE(rows, n);
  const Function ours = [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); };
  const Function plain = [](const auto& in) { return in[0] * at::rsqrt(in[0].square().mean(-1, true) + 1e-5) * in[1]; };
  CHECK(apart(ours, plain, {leaf({rows, n}), leaf({n})}) < 1e-12);
  CHECK(apart(ours, plain, {leaf({rows, n}, at::kFloat), leaf({n}, at::kFloat)}) < 1e-5);
}

TEST_CASE("rms_norm adds to a wider .grad, with equal bits for any number of threads") {
  at::manual_seed(1);
  const at::Tensor x = leaf({70, 40}, at::kBFloat16), weight = leaf({40}, at::kBFloat16);
  weight.mutable_grad() = at::zeros({40}, at::kFloat);
  torch::autograd::backward({rms_norm(x, weight, 1e-6)}, {at::ones({70, 40}, at::kBFloat16)});
  const at::Tensor wide = x.detach().to(at::kDouble);
  const at::Tensor expected = (wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6)).sum(0);
  CHECK(at::allclose(weight.grad().to(at::kDouble), expected, 1e-5, 1e-5));

  // More rows than a thread takes at a time.
  const at::Tensor many = leaf({3000, 40}), heavy = leaf({40}), seed = at::randn({3000, 40});
  const auto computed = [&](int threads, at::ScalarType dtype) {
    at::set_num_threads(threads);
    const at::Tensor rows = many.detach().to(dtype).set_requires_grad(true);
    const at::Tensor scale = heavy.detach().to(dtype).set_requires_grad(true);
    const at::Tensor y = rms_norm(rows, scale, 1e-6);
    std::vector<at::Tensor> all = torch::autograd::grad({y}, {rows, scale}, {seed.to(dtype)});
    all.push_back(y.detach());
    return all;
  };
  const int before = at::get_num_threads();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> one = computed(1, dtype), three = computed(3, dtype);
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], three[i]));
  }
  at::set_num_threads(before);
}

TEST_CASE("swiglu is silu(gate) times up") {
  at::manual_seed(1);
  const Function ours = [](const auto& in) { return swiglu(in[0], in[1]); };
  const Function plain = [](const auto& in) { return at::silu(in[0]) * in[1]; };
  CHECK(apart(ours, plain, {leaf({33, 65}), leaf({33, 65})}) < 1e-12);
  CHECK(apart(ours, plain, {leaf({33, 65}, at::kFloat), leaf({33, 65}, at::kFloat)}) < 1e-5);
  CHECK(swiglu(at::full({1}, -1000.0), at::ones({1})).item<float>() == 0.0F);
}

TEST_CASE("swiglu and rms_norm of 16 bits are those of fp64, rounded") {
  at::manual_seed(1);
  const at::ScalarType dtype = GENERATE(at::kBFloat16, at::kHalf);
  const double rounding = dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const at::Tensor gate = leaf({7, 333}, dtype), up = leaf({7, 333}, dtype), weight = leaf({333}, dtype);
  gate.detach().select(0, 0).mul_(40.0);  // both ends of the sigmoid
  const auto check = [&](const Function& operation, const std::vector<at::Tensor>& in) {
    std::vector<at::Tensor> exact;
    for (const at::Tensor& tensor : in) exact.push_back(tensor.detach().to(at::kDouble).set_requires_grad(true));
    const at::Tensor y = operation(in), expected = operation(exact);
    CHECK(at::allclose(y.to(at::kDouble), expected, 2 * rounding, 1e-6));
    torch::autograd::backward({y}, {at::ones_like(y)});
    torch::autograd::backward({expected}, {at::ones_like(expected)});
    for (std::size_t i = 0; i < in.size(); ++i)
      CHECK(at::allclose(in[i].grad().to(at::kDouble), exact[i].grad(), 2 * rounding, 1e-3));
  };
  check([](const auto& in) { return swiglu(in[0], in[1]); }, {gate, up});
  check([](const auto& in) { return rms_norm(in[0], in[1], 1e-5); }, {leaf({70, 333}, dtype), weight});
  const at::Tensor nan = at::full({3}, NAN, dtype);
  CHECK(swiglu(nan, at::ones({3}, dtype)).isnan().all().item<bool>());
}

TEST_CASE("heads of queries share heads of keys and values in order") {
  at::manual_seed(1);
  const std::int64_t shared = GENERATE(1, 2, 6);
  const Function ours = [](const auto& in) { return attention(in[0], in[1], in[2]); };
  const Function plain = [](const auto& in) { return plain_attention(in[0], in[1], in[2]); };
  CHECK(apart(ours, plain, {leaf({2, 6, 9, 8}), leaf({2, shared, 9, 8}), leaf({2, shared, 9, 8})}) < 1e-10);
}

TEST_CASE("rotated heads are those of plain operators") {
  at::manual_seed(1);
  for (const std::int64_t dimensions : {8, 4, 0}) {
    RotaryTable table(dimensions, 10000.0);
    const Function ours = [&](const auto& in) { return rotated_heads(in[0] * 1.0, 2, 8, table); };
    const Function plain = [&](const auto& in) {
      return rotary_embedding(in[0].view({2, 5, 3, 8}), table).transpose(1, 2);
    };
    CHECK(apart(ours, plain, {leaf({10, 24}, at::kFloat)}) < 1e-6);
  }
}

// What Llama 3's authors do to the frequency of each pair of dimensions, in fp64: waves longer than the old context
// over low_factor turn `factor` times slower, those shorter than it over high_factor as before, and between them a
// linear mixture.
double llama3_frequency(int pair, int dimensions, double base, double factor, double low_factor, double high_factor,
                        double context) {
  const double frequency = std::pow(base, -2.0 * pair / dimensions), turns = context * frequency / (2 * M_PI);
  if (turns < low_factor) return frequency / factor;
  if (turns > high_factor) return frequency;
  const double smooth = (turns - low_factor) / (high_factor - low_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

TEST_CASE("llama3's frequencies are those of its formula, at both ends and in between") {
  for (const auto& [factor, low, high, context] :
       {std::tuple{8.0, 1.0, 4.0, 8192}, {32.0, 1.0, 4.0, 8192}, {4.0, 2.0, 3.0, 1024}}) {
    RotaryTable scaled(64, 5e5, {RotaryScaling::Kind::Llama3, factor, low, high, context});
    const at::Tensor angles = scaled.at(2, at::kCPU).second[1].to(at::kDouble).asin();  // of position 1
    int mixed = 0;
    for (int pair = 1; pair < 32; ++pair) {  // of the first the sine is that of one radian, whose arc sine is 1 too
      CAPTURE(factor, low, high, context, pair);
      const double wanted = llama3_frequency(pair, 64, 5e5, factor, low, high, context);
      CHECK(angles[pair].item<double>() == Approx(wanted).epsilon(1e-5));
      const double plain = std::pow(5e5, -2.0 * pair / 64);
      mixed += wanted < 0.999 * plain && wanted > 1.001 * plain / factor;
    }
    CHECK(mixed >= 1);
  }
}

TEST_CASE("dropout depends on the element's index, has its rate, and is redrawn backward") {
  const at::Tensor key = at::full({}, 77, at::kLong), x = at::ones({100, 200}).set_requires_grad(true);
  const at::Tensor y = dropout(x, 0.3, key, 1, 5000);
  const double kept = y.ne(0).to(at::kDouble).mean().item<double>();
  CHECK(kept == Approx(0.7).margin(0.015));  // four standard deviations of 20,000 draws
  CHECK(at::allclose(y.detach().masked_select(y.ne(0)), at::full({1}, 1 / 0.7F)));
  CHECK(at::equal(torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0], y.detach()));
  // The rows from the 40th on are those numbers on.
  CHECK(at::equal(dropout(at::ones({60, 200}), 0.3, key, 1, 5000 + 40 * 200), y.detach().narrow(0, 40, 60)));
  CHECK_FALSE(at::equal(dropout(at::ones({100, 200}), 0.3, key, 2, 5000), y.detach()));
  CHECK_FALSE(at::equal(dropout(at::ones({100, 200}), 0.3, at::full({}, 78, at::kLong), 1, 5000), y.detach()));
  CHECK(at::equal(dropout(at::ones({3}), 0.0, key, 0, 0), at::ones({3})));
}

TEST_CASE("attention with tiny dropout equals attention, with any cut of the heads") {
  at::manual_seed(1);
  const at::Tensor q = at::randn({2, 4, 6, 8}), k = at::randn({2, 4, 6, 8}), v = at::randn({2, 4, 6, 8});
  const at::Tensor key = at::full({}, 5, at::kLong);
  CHECK(at::allclose(attention(q, k, v, {1e-9, key, 0, 0, 0, 4}), attention(q, k, v), 1e-5, 1e-6));
  const at::Tensor all = attention(q, k, v, {0.5, key, 0, 3, 0, 4});
  const auto half = [](const at::Tensor& t) { return t.narrow(1, 2, 2); };
  CHECK(at::equal(attention(half(q), half(k), half(v), {0.5, key, 0, 3, 2, 4}), half(all)));
  const auto second = [](const at::Tensor& t) { return t.narrow(0, 1, 1); };
  CHECK(at::equal(attention(second(q), second(k), second(v), {0.5, key, 0, 4, 0, 4}), second(all)));
}

// Each rank has rows of the head, the last fewer than the others; the loss is that of all, and the ranks' gradients of
// x add up to its gradient.
TEST_CASE("a head that is cut over ranks has the loss and the gradients of the whole") {
  at::manual_seed(1);
  const int ranks = GENERATE(2, 3);
  const LossTerms terms{.chunk = 3, .z_loss = GENERATE(0.0, 0.1), .largest_logit = true};
  const std::int64_t rows = GENERATE(4, 40), vocabulary = 50, n = 8, part = (vocabulary + ranks - 1) / ranks;
  CAPTURE(ranks, rows);
  const at::Tensor x = at::randn({rows, n}), weight = at::randn({vocabulary, n});
  const at::Tensor targets = at::randint(0, vocabulary, {rows}, at::kLong);
  targets[1] = ignored_target;
  const at::Tensor whole_x = x.clone().set_requires_grad(true), whole_weight = weight.clone().set_requires_grad(true);
  const auto all_of = [](const TokenLoss& one) {
    std::vector<at::Tensor> losses{one.loss};
    if (one.auxiliary_loss.defined()) losses.push_back(one.auxiliary_loss);
    return losses;
  };
  const auto backward = [&](const TokenLoss& one) {
    torch::autograd::backward(all_of(one), std::vector<at::Tensor>(all_of(one).size(), at::full({}, 0.25)));
  };
  const TokenLoss loss = linear_cross_entropy(whole_x, whole_weight, targets, terms);
  backward(loss);
  const auto groups = fakes::local_groups(ranks, std::chrono::seconds(10));
  std::vector<TokenLoss> losses(groups.size());
  std::vector<at::Tensor> dx(groups.size()), dweight(groups.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const std::int64_t first = rank * part, here = std::min(part, vocabulary - first);
      const at::Tensor own_x = x.clone().set_requires_grad(true);
      at::Tensor own_weight = at::zeros({part, n});
      own_weight.narrow(0, 0, here).copy_(weight.narrow(0, first, here));
      own_weight.set_requires_grad(true);
      own_weight.mutable_grad() = at::zeros({part, n});
      const auto index = static_cast<std::size_t>(rank);
      losses[index] =
          linear_cross_entropy(own_x, own_weight, targets, terms, {}, {groups[index].get(), first, here, vocabulary});
      backward(losses[index]);
      dx[index] = own_x.grad();
      dweight[index] = own_weight.grad();
    });
  for (std::thread& thread : threads) thread.join();
  for (const TokenLoss& own : losses) {
    CHECK(at::equal(at::stack(all_of(own)), at::stack(all_of(losses[0]))));
    CHECK(at::allclose(at::stack(all_of(own)), at::stack(all_of(loss)), 1e-6));
    CHECK(at::equal(own.largest_logit, losses[0].largest_logit));
    CHECK(own.largest_logit.item<float>() == Approx(loss.largest_logit.item<float>()).epsilon(1e-6));
  }
  CHECK(at::allclose(at::stack(dx).sum(0), whole_x.grad(), 1e-4, 1e-6));
  const at::Tensor all = at::cat(dweight);
  CHECK(at::allclose(all.narrow(0, 0, vocabulary), whole_weight.grad(), 1e-4, 1e-6));
  CHECK(all.narrow(0, vocabulary, all.size(0) - vocabulary).eq(0).all().item<bool>());
}

TEST_CASE("the logits of a head cut over ranks equal the whole head's") {
  at::manual_seed(1);
  const int ranks = GENERATE(2, 3);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16);
  const std::int64_t vocabulary = 50, n = 8, part = (vocabulary + ranks - 1) / ranks;
  const at::Tensor x = at::randn({6, n}).to(dtype), weight = at::randn({vocabulary, n}).to(dtype);
  const at::Tensor asked = at::tensor({4, 0, 4}, at::kLong), targets = at::tensor({7, 49, 0}, at::kLong);
  const at::Tensor whole = linear_logits(x, weight, asked);
  CHECK(whole.scalar_type() == at::kFloat);
  const at::Tensor loss = linear_cross_entropy(x.index_select(0, asked), weight, targets).loss;
  CHECK(at::nll_loss(whole.log_softmax(1), targets, {}, at::Reduction::Sum).item<float>() ==
        Approx(loss.item<float>()).epsilon(1e-6));
  const auto groups = fakes::local_groups(ranks, std::chrono::seconds(10));
  std::vector<at::Tensor> found(groups.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const std::int64_t first = rank * part, here = std::min(part, vocabulary - first);
      at::Tensor own = at::full({part, n}, 9, weight.options());  // rows of padding may hold anything
      own.narrow(0, 0, here).copy_(weight.narrow(0, first, here));
      const auto index = static_cast<std::size_t>(rank);
      found[index] = linear_logits(x, own, asked, {groups[index].get(), first, here, vocabulary});
    });
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& own : found) {
    CHECK(at::equal(own, found[0]));
    CHECK(at::allclose(own, whole, 1e-6, 1e-6));
  }
}
