#include <strata/error.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <sstream>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

// Ties of bf16 and of fp16 in both directions, the ends of fp16's range, and numbers below the smallest normal ones.
constexpr std::array<float, 12> hard_to_round{1.00390625F,    1.01171875F, -1.00390625F, 1.00048828125F,
                                              1.00146484375F, 65519.99F,   65520.0F,     -70000.0F,
                                              1e-8F,          3e-8F,       -5.9e-8F,     1e-20F};

// The first element whose bytes differ from the master's, rounded.
void check_copy(const ParameterTensors& parameter, const std::string& what) {
  const at::Tensor wanted = parameter.master.to(parameter.copy.scalar_type());
  const std::size_t width = wanted.element_size();
  const auto* found = static_cast<const std::byte*>(parameter.copy.const_data_ptr());
  const auto* rounded = static_cast<const std::byte*>(wanted.const_data_ptr());
  for (std::int64_t i = 0; i < wanted.numel(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (std::memcmp(found + at, rounded + at, width) == 0) continue;
    std::ostringstream text;
    text.precision(9);
    text << what << ": the master's element " << i << " is " << parameter.master.select(0, i).item<double>()
         << ", the parameter's is " << parameter.copy.select(0, i).item<double>() << " instead of "
         << wanted.select(0, i).item<double>() << " in " << c10::toString(wanted.scalar_type())
         << "; every step must write the new master to the parameter, rounded to nearest, ties to even";
    throw Failure(text.str());
  }
}

}  // namespace

void rounded_copy(Subject& subject) {
  if (subject.make<Optimizer>()->trains_elsewhere())
    throw Skip("the parameter is no copy of the master: trains_elsewhere() is true");
  std::mt19937_64 random = subject.random("optimizer.rounded_copy");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    for (const at::ScalarType format : {at::kBFloat16, at::kHalf, at::kFloat}) {
      with_optimizer(subject, options, [&](Optimizer& optimizer) {
        const ParameterTensors parameter =
            make_parameter(optimizer, "layer.weight", {83, 29}, {.copy = format}, random);
        std::memcpy(parameter.master.mutable_data_ptr<float>() + 1, hard_to_round.data(), sizeof hard_to_round);
        for (int t = 0; t < 3; ++t) {
          parameter.gradient.copy_(draw_gradient(parameter.elements(), random));
          Piece piece = parameter.whole();
          fakes::update(optimizer, piece, scalars_of(t == 0 ? 0.0 : 0.01, t));  // at first the hard numbers as they are
          check_copy(parameter, "step " + std::to_string(t + 1) + " (options: " + to_string(options) + ")");
        }
      });
    }
  }
}

void sixteen_bit_gradients(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.sixteen_bit_gradients");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    for (const at::ScalarType format : {at::kBFloat16, at::kHalf}) {
      with_optimizer(subject, options, [&](Optimizer& optimizer) {
        const auto second = subject.make<Optimizer>(options);
        const ParameterTensors narrow =
            make_parameter(optimizer, "layer.weight", {53, 41}, {at::kFloat, format, {}}, random);
        ParameterTensors wide = narrow.clone();
        wide.gradient = narrow.gradient.to(at::kFloat);
        for (int t = 0; t < 3; ++t) {
          narrow.gradient.copy_(draw_gradient(narrow.elements(), random));
          wide.gradient.copy_(narrow.gradient);
          Piece from_narrow = narrow.whole(), from_wide = wide.whole();
          fakes::update(optimizer, from_narrow, scalars_of(0.01, t, 0.3));
          fakes::update(*second, from_wide, scalars_of(0.01, t, 0.3));
          const std::string found = difference(narrow, wide);
          require(found.empty(), "step " + std::to_string(t + 1) + " with gradients in " + c10::toString(format) +
                                     " and with the same values in fp32: " + found +
                                     " (options: " + to_string(options) +
                                     "); convert gradients to fp32 before any arithmetic, including gradient_factor");
        }
      });
    }
  }
}

void sixteen_bit_master(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.sixteen_bit_master");
  const auto plugin = subject.make<Optimizer>();
  const ParameterTensors narrow =
      make_parameter(*plugin, "layer.weight", {53, 41}, {at::kBFloat16, at::kBFloat16, {}}, random);
  ParameterTensors wide = narrow.clone();
  wide.master = narrow.master.to(at::kFloat);
  Piece from_narrow = narrow.whole(), from_wide = wide.whole();
  try {
    fakes::update(*plugin, from_narrow, scalars_of(0.1, 0));
  } catch (const UserError& error) {
    throw Skip(std::string("the optimizer refuses bf16 masters: ") + error.what());
  }
  fakes::update(*subject.make<Optimizer>(), from_wide, scalars_of(0.1, 0));
  for (std::int64_t i = 0; i < narrow.elements(); ++i) {
    const double found = narrow.master.select(0, i).item<double>(), wanted = wide.master.select(0, i).item<double>();
    // One unit of bf16: to nearest is half of it, an update that rounds at random needs the whole.
    if (std::abs(found - wanted) <= 0x1p-7 * std::abs(wanted) + 1e-30) continue;
    std::ostringstream text;
    text.precision(9);
    text << "element " << i << " of a bf16 master becomes " << found << ", in fp32 it becomes " << wanted
         << "; compute the update in fp32 and round once";
    throw Failure(text.str());
  }
}

}  // namespace strata::conformance::optimizer_checks
