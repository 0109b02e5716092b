#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <strata/format.hpp>
#include <strata/operators.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/device/checks.hpp"
#include "conformance/drawn/draws.hpp"

namespace strata::conformance::device_checks {

namespace {

std::string number(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

// Numbers about as large as `size`, some of them far from it, on the host.
at::Tensor draw(std::int64_t elements, float size, std::uint64_t key) {
  const at::Tensor values = at::empty({elements}, at::kFloat);
  std::array<float, 16> sizes{1e-18F, 1e-38F};
  std::fill(sizes.begin() + 2, sizes.end(), 1.0F);
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint64_t bits = mixed(key, static_cast<std::uint64_t>(i));
    const float one = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-30F;
    values.mutable_data_ptr<float>()[i] = size * one * sizes[bits >> 32 & 15U];
  }
  return values;
}

// A copy on the device that begins `shift` elements behind the begin of its memory.
at::Tensor shifted(const UsableDevice& device, const at::Tensor& values, std::int64_t shift) {
  return at::empty({values.numel() + shift}, device.options(values.scalar_type()))
      .narrow(0, shift, values.numel())
      .copy_(values);
}

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kFloat).cpu().contiguous();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

// Each product and sum is rounded separately, without fusing.
float times(float a, float b) {
  volatile const float result = a * b;
  return result;
}
float plus(float a, float b) {
  volatile const float result = a + b;
  return result;
}

struct AdamwTensors {
  at::Tensor master, gradient, parameter, first, second;
};

// The formula of <strata/operators.hpp>, on the host.
void step_of(std::vector<float>& p, std::vector<float>& m, std::vector<float>& v, const std::vector<float>& gradient,
             float factor, const operators::AdamwNumbers& n) {
  const auto rest1 = static_cast<float>(1.0 - n.beta1), rest2 = static_cast<float>(1.0 - n.beta2),
             beta2 = static_cast<float>(n.beta2);
  const auto decay = static_cast<float>(n.decay), step_size = static_cast<float>(n.step_size),
             epsilon = static_cast<float>(n.epsilon);
  const auto correction = static_cast<float>(n.second_correction);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float g = times(gradient[i], factor);
    m[i] = plus(m[i], times(rest1, plus(g, -m[i])));
    v[i] = plus(times(beta2, v[i]), times(times(rest2, g), g));
    const float denominator = plus(times(std::sqrt(v[i]), correction), epsilon);
    volatile const float quotient = m[i] / denominator;
    p[i] = plus(times(p[i], decay), -times(step_size, quotient));
  }
}

void equal(const std::vector<float>& found, const std::vector<float>& wanted, const std::string& what) {
  for (std::size_t i = 0; i < found.size(); ++i)
    require(std::memcmp(&found[i], &wanted[i], sizeof(float)) == 0,
            what + ": element " + std::to_string(i) + " is " + number(found[i]) +
                "; the formula in fp32, with every product and sum rounded separately, gives " + number(wanted[i]));
}

void check_step(const UsableDevice& device, const AdamwTensors& at_first, double apply, double factor,
                const operators::AdamwNumbers& numbers, const std::string& what) {
  std::vector<float> p = floats_of(at_first.master), m = floats_of(at_first.first), v = floats_of(at_first.second);
  const std::vector<float> g = floats_of(at_first.gradient),
                           before = at_first.parameter.defined() ? floats_of(at_first.parameter) : p;
  const auto scalar = [&](double value) { return at::full({}, value, device.options(at::kFloat)); };
  operators::adamw_step(at_first.master, at_first.gradient,
                        at_first.parameter.defined() ? std::optional(at_first.parameter) : std::nullopt, at_first.first,
                        at_first.second, scalar(factor), scalar(apply), numbers);
  device->synchronize();
  if (apply != 0.0) step_of(p, m, v, g, static_cast<float>(factor), numbers);
  equal(floats_of(at_first.first), m, what + ", exp_avg");
  equal(floats_of(at_first.second), v, what + ", exp_avg_sq");
  equal(floats_of(at_first.master), p, what + ", master");
  if (!at_first.parameter.defined()) return;
  const at::Tensor rounded = at_first.master.to(at_first.parameter.scalar_type());
  equal(floats_of(at_first.parameter), apply != 0.0 ? floats_of(rounded) : before, what + ", parameter");
}

}  // namespace

void sum_of_squares(const UsableDevice& device, Draws& draws) {
  if (!operators::available("sum_of_squares", device.place())) return;  // the engine uses its fallback
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kBFloat16, at::kHalf};
  const at::ScalarType dtype = draws.pick(dtypes);
  std::vector<at::Tensor> tensors, elsewhere;
  double wanted = 0.0;
  std::int64_t all = 0;
  std::string what = std::string("sum_of_squares in ") + c10::toString(dtype) + " of";
  for (auto count = draws.between(1, 6); count > 0; --count) {
    const std::int64_t length = draws.chance(6) ? 0 : draws.size(1 << 17);
    const bool is_huge = dtype != at::kHalf && draws.chance(6);  // its square overflows fp32
    const at::Tensor values = draw(length, is_huge ? 1e38F : 1.0F, mixed(3, static_cast<std::uint64_t>(all))).to(dtype);
    tensors.push_back(shifted(device, values, draws.between(0, 7)));
    elsewhere.push_back(shifted(device, values, draws.between(0, 7)));
    wanted += values.to(at::kDouble).square().sum().item<double>();
    all += length;
    what += format(" {}", length);
  }
  what += " elements";
  const at::Tensor sum = operators::sum_of_squares(tensors);
  require(sum.scalar_type() == at::kDouble && sum.dim() == 0 && sum.device() == device.place(),
          what + " is not a 0-dimensional fp64 tensor on the device");
  const double found = sum.item<double>(), bound = static_cast<double>(all + 8) * 0x1p-53;  // of fp64 in any order
  require(std::abs(found - wanted) <= bound * wanted,
          what + " is " + number(found) + "; in fp64 it is " + number(wanted));
  require(operators::sum_of_squares(elsewhere).item<double>() == found,
          what + " gives other bits if the tensors begin elsewhere; a norm must not depend on addresses");
  if (all == 0 || !draws.chance(2)) return;
  const at::Tensor& spoilt = *std::ranges::find_if(tensors, [](const at::Tensor& one) { return one.numel() > 0; });
  spoilt.select(0, draws.between(0, spoilt.numel() - 1)).fill_(std::numeric_limits<float>::infinity());
  require(!std::isfinite(operators::sum_of_squares(tensors).item<double>()),
          what + ", one of them infinite, is finite, so the engine would miss an overflow");
}

void adamw_step(const UsableDevice& device, Draws& draws) {
  if (!operators::available("adamw_step", device.place())) return;  // optimizers use their fallback
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kBFloat16, at::kHalf};
  const at::ScalarType gradient = draws.pick(dtypes);
  const std::int64_t length = draws.size(1 << 15), shift = draws.between(0, 3);
  const std::vector<double> betas{0.9, 0.0, 0.5, 0.95, 0.999};
  const operators::AdamwNumbers numbers{.decay = draws.chance(2) ? 1.0 - 0.01 * 0.1 : 1.0,
                                        .step_size = draws.chance(4) ? 0.0 : 0.013,
                                        .second_correction = 1.7,
                                        .beta1 = draws.pick(betas),
                                        .beta2 = draws.pick(betas),
                                        .epsilon = draws.chance(2) ? 1e-8 : 1e-3};
  AdamwTensors tensors{shifted(device, draw(length, 1.0F, 1), shift),
                       shifted(device, draw(length, 8.0F, 2).to(gradient), shift),
                       {},
                       shifted(device, draw(length, 0.1F, 3), shift),
                       shifted(device, draw(length, 0.1F, 4).abs(), shift)};
  std::string what = format("adamw_step of {} elements, gradients in {}", length, c10::toString(gradient));
  if (draws.chance(2)) {
    const at::ScalarType copy = draws.pick(dtypes);
    tensors.parameter = shifted(device, draw(length, 1.0F, 5).to(copy), shift);
    what += std::string(", parameters in ") + c10::toString(copy);
  }
  what += ", beta1 " + number(numbers.beta1) + ", beta2 " + number(numbers.beta2);
  check_step(device, tensors, 1.0, draws.chance(2) ? 0.125 * 0.3 : 1.0, numbers, what);
  tensors.gradient.select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
  check_step(device, tensors, 0.0, std::numeric_limits<double>::infinity(), numbers, what + ", where apply is 0");
}

}  // namespace strata::conformance::device_checks
