// The CUDA kernels' own source, run on the processor, beside the processor's kernels: the same bits.
#include "on_host.hpp"  // first: it gives the kernels CUDA's words

#include "adamw_kernel.cuh"
#include "pieces.hpp"
#include "squares_kernel.cuh"

#include "catch.hpp"  // last: libtorch has a CHECK of its own, which ends the program

using namespace strata;
using namespace strata::cuda_device;

namespace {

Format format_of(at::ScalarType dtype) {
  return dtype == at::kFloat      ? Format::Fp32
         : dtype == at::kBFloat16 ? Format::Bf16
         : dtype == at::kHalf     ? Format::Fp16
                                  : Format::None;
}

template <typename Gradient, typename Parameter>
void run_adamw(AdamwArguments a, unsigned blocks) {
  a.head = packs_begin(a, sizeof(Gradient),
                       std::is_same_v<Parameter, NoCopy> ? 0 : static_cast<std::int64_t>(sizeof(Parameter)));
  on_host::run(blocks, 64, false, [&] { adamw_kernel<Gradient, Parameter>(a); });
}

template <typename Gradient>
void run_adamw(const AdamwArguments& a, Format parameter, unsigned blocks) {
  switch (parameter) {
    case Format::None:
      return run_adamw<Gradient, NoCopy>(a, blocks);
    case Format::Fp32:
      return run_adamw<Gradient, float>(a, blocks);
    case Format::Bf16:
      return run_adamw<Gradient, Bf16>(a, blocks);
    case Format::Fp16:
      return run_adamw<Gradient, Fp16>(a, blocks);
  }
}

// As plugins/device/cuda/cuda_operators.cpp fills the arguments.
void kernel_step(const Piece& piece, const StepScalars& scalars, unsigned blocks) {
  const adamw::AdamwHyperparameters& h = numbers_of_test;
  const double t = static_cast<double>(scalars.updates + 1);
  AdamwArguments a;
  a.master = piece.master.mutable_data_ptr<float>();
  a.gradient = piece.gradient.const_data_ptr();
  a.parameter = piece.parameter.defined() ? piece.parameter.mutable_data_ptr() : nullptr;
  a.exp_avg = piece.state[0].mutable_data_ptr<float>();
  a.exp_avg_sq = piece.state[1].mutable_data_ptr<float>();
  a.gradient_factor = scalars.gradient_factor.const_data_ptr<float>();
  a.apply = scalars.apply.const_data_ptr<float>();
  a.count = piece.master.numel();
  a.decay = static_cast<float>(1.0 - scalars.learning_rate * h.weight_decay);
  a.step_size = static_cast<float>(scalars.learning_rate / (1.0 - std::pow(h.beta1, t)));
  a.second_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(h.beta2, t)));
  a.epsilon = static_cast<float>(h.epsilon);
  a.beta2 = static_cast<float>(h.beta2);
  a.rest1 = static_cast<float>(1.0 - h.beta1);
  a.rest2 = static_cast<float>(1.0 - h.beta2);
  const Format parameter = piece.parameter.defined() ? format_of(piece.parameter.scalar_type()) : Format::None;
  switch (format_of(piece.gradient.scalar_type())) {
    case Format::Bf16:
      return run_adamw<Bf16>(a, parameter, blocks);
    case Format::Fp16:
      return run_adamw<Fp16>(a, parameter, blocks);
    default:
      return run_adamw<float>(a, parameter, blocks);
  }
}

double squares_on_host(const std::vector<at::Tensor>& tensors) {
  SquaresBatch batch;
  std::int64_t chunks = 0;
  for (const at::Tensor& tensor : tensors) {
    batch.tensors[batch.length++] = {tensor.const_data_ptr(), tensor.numel(), chunks, format_of(tensor.scalar_type())};
    chunks += (tensor.numel() + squares_chunk - 1) / squares_chunk;
  }
  std::vector<double> partial(static_cast<std::size_t>(chunks), NAN);
  double result = NAN;
  on_host::run(static_cast<unsigned>(chunks), squares_threads, true, [&] { squares_kernel(batch, 0, partial.data()); });
  on_host::run(1, squares_threads, true, [&] { squares_total_kernel(partial.data(), chunks, &result); });
  return result;
}

double squares_in_doubles(const std::vector<at::Tensor>& tensors) {
  double sum = 0.0;
  for (const at::Tensor& tensor : tensors) sum += tensor.to(at::kDouble).square().sum().item<double>();
  return sum;
}

}  // namespace

TEST_CASE("the AdamW kernel's source gives the processor kernel's bits: formats, lengths, alignments, grids") {
  for (const AdamwCase& c : adamw_cases({0, 1, 2, 3, 4, 5, 11, 64, 1027})) {
    const Piece expected = piece_of(c), got = clone_of(expected);
    for (int t = 0; t < 2; ++t) {
      processor_step(expected, scalars_of(t));
      kernel_step(got, scalars_of(t), t == 0 ? 1 : 7);  // few threads that go round, and more than there is to do
    }
    CAPTURE(c10::toString(c.gradient), c10::toString(c.copy), c.elements, c.offset, c.uneven);
    REQUIRE(same_bits(expected, got));
  }
}

TEST_CASE("the AdamW kernel's source rounds every pattern as the processor's kernel does, ties to even") {
  for (const at::ScalarType copy : {at::kBFloat16, at::kHalf}) {
    const Piece expected = rounding_piece(copy), got = clone_of(expected);
    StepScalars still = scalars_of(0);
    still.learning_rate = 0.0;
    processor_step(expected, still);
    kernel_step(got, still, 7);
    CHECK(same_bits(expected, got));
    CHECK(at::equal(got.parameter, got.master.to(copy)));  // libtorch's own rounding
  }
}

TEST_CASE("the AdamW kernel's source reads in packs wherever it can") {
  AdamwArguments a;
  alignas(16) float numbers[16] = {};
  alignas(16) std::uint16_t halves[16] = {};
  a.count = 9;
  a.master = numbers + 1;
  a.exp_avg = numbers + 5;
  a.exp_avg_sq = numbers + 1;
  a.gradient = halves + 1;
  CHECK(packs_begin(a, 2, 0) == 3);
  a.parameter = halves + 2;
  CHECK(packs_begin(a, 2, 2) == 9);  // never aligned together: one by one
  a.count = 2;
  CHECK(packs_begin(a, 2, 0) == 2);
}

TEST_CASE("the AdamW kernel's source touches nothing when a step is not applied") {
  const Piece start = piece_of({at::kBFloat16, at::kBFloat16, 1000, 3}), got = clone_of(start);
  kernel_step(got, scalars_of(0, NAN, 0.0), 2);
  CHECK(same_bits(start, got));
}

TEST_CASE("the sum of squares' source adds every element of any format once") {
  at::manual_seed(3);
  const std::int64_t chunk = squares_chunk;
  const std::vector<at::Tensor> tensors{at::randn({1}),
                                        at::randn({chunk}),
                                        at::randn({chunk + 1}).to(at::kBFloat16),
                                        at::randn({2 * chunk}),
                                        at::randn({511}).to(at::kHalf),
                                        at::randn({chunk - 1})};
  const double expected = squares_in_doubles(tensors);
  CHECK(squares_on_host(tensors) == Approx(expected).epsilon(1e-13));
  CHECK(squares_on_host({tensors[0]}) == Approx(squares_in_doubles({tensors[0]})).epsilon(1e-13));
  const at::Tensor moved = at::empty({chunk + 8}).narrow(0, 3, chunk + 1).copy_(tensors[2]);
  CHECK(squares_on_host({tensors[2].to(at::kFloat)}) == squares_on_host({moved}));  // the same order wherever it lies
}

TEST_CASE("a number that is not finite is not lost in the sum of squares' source") {
  const at::Tensor values = at::ones({70000});
  values[69999] = INFINITY;
  CHECK(std::isinf(squares_on_host({values})));
  values[0] = NAN;
  CHECK(std::isnan(squares_on_host({values})));
  CHECK(squares_on_host({at::full({4}, 3e38)}) == Approx(4.0 * 9e76).epsilon(1e-6));  // beyond fp32
}
