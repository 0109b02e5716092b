// The operators that device/cuda brings, beside the processor's kernels; optimizers, offload and NCCL on a GPU. Cases
// tagged [gpu] compute nothing without one, and say so: ctest runs them apart from the others and then counts them as
// skipped. STRATA_REQUIRE_GPU=1 makes its absence a failure.
#include <ATen/ATen.h>
#include <strata/communicator.hpp>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_context.hpp>
#include <strata/fakes/run_context.hpp>
#include <strata/offload_device.hpp>
#include <strata/operators.hpp>
#include <strata/optimizer.hpp>
#include <strata/plain_device.hpp>
#include <strata/precision_policy.hpp>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>

#include "pieces.hpp"
#include "plugins/registry.hpp"
#include "state/host_copies.hpp"

#include "catch.hpp"  // last: libtorch has a CHECK of its own, which ends the program

using namespace strata;

namespace {

plugins::PluginRegistry& registry() {
  static plugins::PluginRegistry all(plugins::search_folders({}));
  return all;
}

// A plugin with its default options but `changed`.
template <typename Kind>
std::unique_ptr<Kind> make(const std::string& name, const OptionValues& options) {
  static std::vector<std::unique_ptr<fakes::FakePluginContext>> contexts;  // plugins keep a reference
  contexts.push_back(std::make_unique<fakes::FakePluginContext>(name, options));
  return registry().create<Kind>(name, *contexts.back());
}

Device& cuda() {
  static const std::unique_ptr<Device> device = [] {
    OptionValues options;
    options.set("ranks_per_gpu", std::int64_t{1});
    return make<Device>("cuda", options);
  }();
  return *device;
}

// The GPU, or nothing on a machine without one.
std::optional<at::Device> gpu() {
  if (cuda().count() > 0) {
    static const at::Device place = cuda().select(0);
    return place;
  }
  const char* const required = std::getenv("STRATA_REQUIRE_GPU");
  if (required != nullptr && *required == '1') FAIL("a GPU is required (STRATA_REQUIRE_GPU=1): " << cuda().why());
  WARN("no GPU here (" << cuda().why() << "): nothing is computed in this case");
  return std::nullopt;
}

void operator_step(const Piece& piece, const StepScalars& scalars) {
  REQUIRE(adamw::takes_operator_step(piece));
  adamw::adamw_operator_step(piece, scalars, numbers_of_test);
}

double squares_in_doubles(const std::vector<at::Tensor>& tensors) {
  double sum = 0.0;
  for (const at::Tensor& tensor : tensors) sum += tensor.cpu().to(at::kDouble).square().sum().item<double>();
  return sum;
}

}  // namespace

TEST_CASE("device/cuda brings kernels for CUDA tensors and for no others", "[small]") {
  cuda();  // loads the library
  for (const char* const name : {"adamw_step", "sum_of_squares"}) {
    CHECK(operators::available(name, at::Device(at::kCUDA)) == static_cast<bool>(WITH_CUDA_KERNELS));
    CHECK_FALSE(operators::available(name, at::kCPU));
    CHECK_FALSE(operators::available(name, at::kMeta));
  }
  CHECK_FALSE(operators::available("no_such_operator", at::Device(at::kCUDA)));
}

TEST_CASE("kernels a checker can follow: few cases of each", "[gpu][sanitized]") {
  const auto place = gpu();
  if (!place) return;
  for (const AdamwCase& c :
       {AdamwCase{at::kFloat, at::kByte, 1027, 1}, AdamwCase{at::kBFloat16, at::kBFloat16, 1029, 3},
        AdamwCase{at::kHalf, at::kHalf, 70001, 2, true}, AdamwCase{at::kFloat, at::kBFloat16, 3, 7}}) {
    const Piece expected = piece_of(c), got = clone_of(expected, *place);
    processor_step(expected, scalars_of(0));
    operator_step(got, scalars_of(0, 0.5, 1.0, *place));
    CHECK(same_bits(expected, got));
    const std::vector<at::Tensor> list{got.master, got.gradient, got.state[0].narrow(0, 1, 2)};
    CHECK(operators::sum_of_squares(list).item<double>() == Approx(squares_in_doubles(list)).epsilon(1e-13));
  }
}

TEST_CASE("AdamW on the GPU gives the processor's bits: formats, lengths, alignments", "[gpu][small]") {
  const auto place = gpu();
  if (!place) return;
  for (const AdamwCase& c : adamw_cases({0, 1, 3, 4, 5, 11, 1027})) {
    const Piece expected = piece_of(c), got = clone_of(expected, *place);
    for (int t = 0; t < 2; ++t) {
      processor_step(expected, scalars_of(t));
      operator_step(got, scalars_of(t, 0.5, 1.0, *place));
    }
    CAPTURE(c10::toString(c.gradient), c10::toString(c.copy), c.elements, c.offset, c.uneven);
    REQUIRE(same_bits(expected, got));
  }
}

TEST_CASE("AdamW on the GPU rounds every pattern as the processor does, ties to even", "[gpu][small]") {
  const auto place = gpu();
  if (!place) return;
  for (const at::ScalarType copy : {at::kBFloat16, at::kHalf}) {
    const Piece expected = rounding_piece(copy), got = clone_of(expected, *place);
    StepScalars still = scalars_of(0), still_there = scalars_of(0, 0.5, 1.0, *place);
    still.learning_rate = still_there.learning_rate = 0.0;
    processor_step(expected, still);
    operator_step(got, still_there);
    CHECK(same_bits(expected, got));
  }
}

TEST_CASE("AdamW on the GPU: millions of elements, odd ones, beside libtorch's operators too", "[gpu]") {
  const auto place = gpu();
  if (!place) return;
  for (const AdamwCase& c :
       {AdamwCase{at::kFloat, at::kBFloat16, 30000001, 1}, AdamwCase{at::kBFloat16, at::kByte, 9999999, 3, false}}) {
    const Piece expected = piece_of(c), got = clone_of(expected, *place), plain = clone_of(expected, *place);
    processor_step(expected, scalars_of(2));
    operator_step(got, scalars_of(2, 0.5, 1.0, *place));
    adamw::adamw_reference_step(plain, scalars_of(2, 0.5, 1.0, *place), numbers_of_test);
    CHECK(same_bits(expected, got));
    CHECK(at::allclose(got.master, plain.master, 1e-6, 1e-6));
    CHECK(at::allclose(got.state[1], plain.state[1], 1e-6, 1e-9));
  }
}

TEST_CASE("AdamW on the GPU: more elements than 32 bits count", "[gpu][large]") {
  const auto place = gpu();
  if (!place) return;
  const std::int64_t elements = (std::int64_t{1} << 31) + 5, tail = 1000;
  if (cuda().memory().available < 34 * elements / 2) {
    WARN("too little free GPU memory for 2^31 elements: not checked");
    return;
  }
  const at::TensorOptions options = at::TensorOptions().device(*place).dtype(at::kFloat);
  Piece piece;
  piece.master = at::ones({elements}, options);
  piece.gradient = at::full({elements}, 0.25, options.dtype(at::kBFloat16));
  piece.state = {at::zeros({elements}, options), at::zeros({elements}, options)};
  Piece expected;
  expected.master = at::ones({tail});
  expected.gradient = at::full({tail}, 0.25);
  expected.state = {at::zeros({tail}), at::zeros({tail})};
  operator_step(piece, scalars_of(0, 0.5, 1.0, *place));
  processor_step(expected, scalars_of(0));
  CHECK(at::equal(piece.master.narrow(0, elements - tail, tail).cpu(), expected.master));
  CHECK(at::equal(piece.master.narrow(0, 0, tail).cpu(), expected.master));
  CHECK(piece.master.min().item<float>() == piece.master.max().item<float>());  // none left out, none done twice
  CHECK(operators::sum_of_squares({piece.gradient}).item<double>() ==
        Approx(0.0625 * static_cast<double>(elements)).epsilon(1e-13));
}

TEST_CASE("AdamW on the GPU skips a step that is not applied, and refuses bad inputs", "[gpu][small]") {
  const auto place = gpu();
  if (!place) return;
  const Piece start = piece_of({at::kBFloat16, at::kBFloat16, 5000, 3}), got = clone_of(start, *place);
  const StepScalars scalars = scalars_of(0, NAN, 0.0, *place);
  operator_step(got, scalars);
  CHECK(same_bits(start, got));
  const auto refused = [&](const Piece& p, const StepScalars& s) {
    CHECK_THROWS_AS(operators::adamw_step(p.master, p.gradient, p.parameter, p.state[0], p.state[1], s.gradient_factor,
                                          s.apply, {}),
                    c10::Error);
  };
  Piece wrong = got;
  wrong.gradient = got.gradient.narrow(0, 0, 4999);
  refused(wrong, scalars);
  wrong = got;
  wrong.gradient = start.gradient;  // on the host
  refused(wrong, scalars);
  wrong = got;
  wrong.gradient = got.gradient.to(at::kDouble);
  refused(wrong, scalars);
  wrong = got;
  wrong.state[1] = got.state[1].to(at::kBFloat16);
  CHECK_FALSE(adamw::takes_operator_step(wrong));
  refused(wrong, scalars);
  refused(got, scalars_of(0, 1.0, 1.0));  // scalars on the host
}

TEST_CASE("sum of squares on the GPU: exact to fp64, the same bits every time and wherever it lies", "[gpu][small]") {
  const auto place = gpu();
  if (!place) return;
  at::manual_seed(4);
  std::vector<at::Tensor> tensors;
  for (const std::int64_t length : {1, 0, 65535, 65536, 65537, 400003, 31}) {
    const at::Tensor values = at::randn({length + 3}).to(*place).narrow(0, length % 4, length);
    tensors.push_back(values);
    tensors.push_back(values.to(at::kBFloat16));
    tensors.push_back(values.to(at::kHalf));
  }
  const double sum = operators::sum_of_squares(tensors).item<double>();
  CHECK(sum == Approx(squares_in_doubles(tensors)).epsilon(1e-13));
  for (int i = 0; i < 5; ++i) CHECK(operators::sum_of_squares(tensors).item<double>() == sum);
  std::vector<at::Tensor> moved;
  for (const at::Tensor& tensor : tensors)
    moved.push_back(at::empty({tensor.numel() + 5}, tensor.options()).narrow(0, 5, tensor.numel()).copy_(tensor));
  CHECK(operators::sum_of_squares(moved).item<double>() == sum);
  std::vector<at::Tensor> many;  // more than one launch takes
  for (int i = 0; i < 500; ++i)
    many.push_back(tensors[static_cast<std::size_t>(i) % tensors.size()].narrow(
        0, 0, 1 % (1 + tensors[static_cast<std::size_t>(i) % tensors.size()].numel())));
  CHECK(operators::sum_of_squares(many).item<double>() == Approx(squares_in_doubles(many)).epsilon(1e-13));
  tensors.back().fill_(INFINITY);
  CHECK(std::isinf(operators::sum_of_squares(tensors).item<double>()));
  CHECK(operators::sum_of_squares({at::empty({0}, tensors[0].options())}).item<double>() == 0.0);
  CHECK_THROWS_AS(operators::sum_of_squares({tensors[0], at::ones({3})}), c10::Error);
  CHECK_THROWS_AS(operators::sum_of_squares({tensors[0].to(at::kDouble)}), c10::Error);
}

TEST_CASE("the optimizer plugins update pieces in GPU memory", "[gpu]") {
  const auto place = gpu();
  if (!place) return;
  OptionValues adamw_options, sgd_options;
  adamw_options.set("betas", std::vector<double>{0.8, 0.95});
  adamw_options.set("epsilon", 1e-6);
  adamw_options.set("weight_decay", 0.1);
  sgd_options.set("momentum", 0.9);
  sgd_options.set("dampening", 0.0);
  sgd_options.set("nesterov", true);
  sgd_options.set("weight_decay", 0.1);
  const auto adamw = make<Optimizer>("adamw", adamw_options);
  const auto sgd = make<Optimizer>("sgd", sgd_options);
  for (const AdamwCase& c :
       {AdamwCase{at::kFloat, at::kByte, 10007, 1}, AdamwCase{at::kFloat, at::kBFloat16, 10007, 1}}) {
    Piece expected = piece_of(c), got = clone_of(expected, *place);
    fakes::update(*adamw, expected, scalars_of(1));
    fakes::update(*adamw, got, scalars_of(1, 0.5, 1.0, *place));
    CHECK(same_bits(expected, got));
    Piece plain = piece_of(c);
    plain.state.pop_back();
    Piece on_gpu = clone_of(plain, *place);
    fakes::update(*sgd, plain, scalars_of(1));
    fakes::update(*sgd, on_gpu, scalars_of(1, 0.5, 1.0, *place));
    CHECK(at::allclose(on_gpu.master.cpu(), plain.master, 1e-6, 1e-6));
  }
}

TEST_CASE("an update whose state lies in host memory gives the processor's bits") {
  const at::Device place = gpu().value_or(at::kCPU);  // without a GPU the copies are the processor's
  PlainDevice plain{at::kCPU};
  Device& device = place.is_cpu() ? static_cast<Device&>(plain) : cuda();
  const Piece expected = piece_of({at::kFloat, at::kBFloat16, 10007, 0}), start = clone_of(expected);
  Piece piece = start;
  piece.parameter = start.parameter.to(place);
  StateStore store(place);
  state::HostCopies copies(10048 * 2, store, device);
  CHECK(store.ledger().now[static_cast<std::size_t>(Category::Staging)][static_cast<std::size_t>(Tier::Host)] ==
        10048 * 2);
  const StepScalars scalars = scalars_of(1);
  copies.step(std::array{&piece}, [&] { processor_step(piece, scalars); });
  processor_step(expected, scalars);
  CHECK(at::equal(piece.master, expected.master));
  CHECK(piece.parameter.device() == place);
  CHECK(at::equal(piece.parameter.cpu(), expected.parameter));
}

TEST_CASE("fp8's products on a GPU are those that it emulates on the processor", "[gpu]") {
  const auto place = gpu();
  if (!place) return;
  fakes::FakeRunContext there(*place), here;
  const OptionValues options = default_options(registry().find(PluginKind::PrecisionPolicy, "fp8").manifest.options);
  const auto on_gpu = make<PrecisionPolicy>("fp8", options), on_host = make<PrecisionPolicy>("fp8", options);
  on_gpu->run_begins(there);
  on_host->run_begins(here);
  // A rounding to bf16, and sums in fewer bits than fp32's.
  const auto check = [](const at::Tensor& found, const at::Tensor& expected, const at::Tensor& left,
                        const at::Tensor& right) {
    const at::Tensor terms = at::mm(left.to(at::kFloat).abs(), right.to(at::kFloat).abs());
    const at::Tensor apart = (found.cpu().to(at::kFloat) - expected.to(at::kFloat)).abs();
    CHECK((apart <= expected.to(at::kFloat).abs() * 0x1p-7 + terms * 0x1p-10).all().item<bool>());
  };
  for (const auto& [rows, in, out] : {std::tuple{64, 96, 32}, std::tuple{5, 40, 24}}) {  // the second is emulated
    const at::Tensor x = at::randn({rows, in}).to(at::kBFloat16),
                     dy = at::randn({rows, out}).mul(1e-4).to(at::kBFloat16);
    const at::Tensor b = at::randn({out}).to(at::kBFloat16);
    const Parameter w{{.name = "weight", .shape = {out, in}}, at::randn({out, in}).to(at::kBFloat16)};
    const Parameter w_there{w.info, w.tensor.to(*place)};
    const at::Tensor x_there = x.to(*place), dy_there = dy.to(*place);
    check(on_gpu->linear(x_there, w_there, b.to(*place)), on_host->linear(x, w, b), x, w.tensor.t());
    check(on_gpu->input_gradient(dy_there, w_there), on_host->input_gradient(dy, w), dy, w.tensor);
    const at::Tensor into = at::zeros({out, in}), into_there = into.to(*place);
    on_host->add_weight_gradient(dy, x, w.info, into, false);
    on_gpu->add_weight_gradient(dy_there, x_there, w.info, into_there, false);
    check(into_there, into, dy.t(), x);
  }
}

TEST_CASE("NCCL: a group of one moves every format that a run sends", "[gpu]") {
  const auto place = gpu();
  if (!place) return;
  const auto communicator = make<Communicator>("nccl", {});
  REQUIRE(communicator->unavailable() == "");
  GroupSetup setup;
  setup.name = "one";
  setup.timeout = std::chrono::seconds(60);
  const auto backend = communicator->connect(c10::make_intrusive<c10d::HashStore>(), setup);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    const at::Tensor values = at::arange(100, at::TensorOptions().device(*place)).to(dtype);
    at::Tensor input = values.clone(), output = at::zeros_like(values);
    backend->_allgather_base(output, input)->wait();
    CHECK(at::equal(output, values));
    output.zero_();
    backend->_reduce_scatter_base(output, input)->wait();
    CHECK(at::equal(output, values));
    std::vector<at::Tensor> both{input};
    backend->allreduce(both)->wait();
    backend->broadcast(both)->wait();
    CHECK(at::equal(input, values));
  }
  backend->barrier()->wait();
  backend->shutdown();
}
