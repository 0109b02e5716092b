#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <strata/operators.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <vector>

#include "device/checks.hpp"
#include "device/usable_device.hpp"

namespace strata::conformance::device_checks {

namespace {

std::string number(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

// Normal numbers times `size`, on the host.
at::Tensor draw(std::int64_t elements, float size, std::mt19937_64& random) {
  const at::Tensor values = at::empty({elements}, at::kFloat);
  std::normal_distribution<float> normal;
  std::generate_n(values.mutable_data_ptr<float>(), elements, [&] { return size * normal(random); });
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

// Each product and sum rounded on its own, whatever the compiler would fuse.
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
                const std::string& what) {
  const operators::AdamwNumbers numbers{1.0 - 0.01 * 0.1, 0.013, 1.7, 0.9, 0.995, 1e-8};
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

void sum_of_squares(Subject& subject) {
  const UsableDevice device(subject);
  if (!operators::available("sum_of_squares", device.place()))
    throw Skip("the plugin has no sum_of_squares; the engine uses its fallback");
  std::mt19937_64 random = subject.random("device.sum_of_squares");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t length :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{33}, std::int64_t{16'385},
          std::int64_t{300'001}, static_cast<std::int64_t>(random() % 50'000)}) {
      const at::Tensor values = draw(length, 1.0F, random).to(dtype);
      const std::string what = "sum_of_squares of " + std::to_string(length) + " elements in " + c10::toString(dtype);
      const double wanted = values.to(at::kDouble).square().sum().item<double>();
      const double bound = static_cast<double>(length + 8) * 0x1p-53;  // of a sum in fp64 in any order
      const at::Tensor sum = operators::sum_of_squares({shifted(device, values, 0)});
      require(sum.scalar_type() == at::kDouble && sum.dim() == 0 && sum.device() == device.place(),
              what + " is not a 0-dimensional fp64 tensor on the device");
      const double found = sum.item<double>();
      require(std::abs(found - wanted) <= bound * wanted,
              what + " is " + number(found) + "; in fp64 it is " + number(wanted));
      for (const std::int64_t shift : {1, 3, 5})
        require(operators::sum_of_squares({shifted(device, values, shift)}).item<double>() == found,
                what + " gives other bits if the tensor begins " + std::to_string(shift) +
                    " elements later; a norm must not depend on addresses");
      const at::Tensor all = shifted(device, values, 2);
      const double parts =
          operators::sum_of_squares({all.narrow(0, 0, length / 3), all.narrow(0, length / 3, length - length / 3)})
              .item<double>();
      require(std::abs(parts - wanted) <= bound * wanted,
              what + ", split into two tensors, is " + number(parts) + "; in fp64 it is " + number(wanted));
    }
  }
  const at::Tensor huge = at::full({3}, 3e38, device.options(at::kFloat));
  require(std::isfinite(operators::sum_of_squares({huge}).item<double>()),
          "sum_of_squares of fp32 values near the largest is not finite; it must accumulate in fp64");
  huge.select(0, 1).fill_(std::numeric_limits<float>::infinity());
  require(!std::isfinite(operators::sum_of_squares({huge}).item<double>()),
          "sum_of_squares of an infinite element is finite, so the engine would miss an overflow");
}

void adamw_step(Subject& subject) {
  const UsableDevice device(subject);
  if (!operators::available("adamw_step", device.place()))
    throw Skip("the plugin has no adamw_step; optimizers use their fallback");
  std::mt19937_64 random = subject.random("device.adamw_step");
  for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::optional<at::ScalarType>& copy : {std::optional<at::ScalarType>(), std::optional(at::kBFloat16),
                                                      std::optional(at::kHalf), std::optional(at::kFloat)}) {
      for (const std::int64_t length :
           {std::int64_t{1}, std::int64_t{7}, std::int64_t{2049}, static_cast<std::int64_t>(1 + random() % 20'000)}) {
        const std::int64_t shift = static_cast<std::int64_t>(random() % 4);
        AdamwTensors tensors{shifted(device, draw(length, 1.0F, random), shift),
                             shifted(device, draw(length, 8.0F, random).to(gradient), shift),
                             {},
                             shifted(device, draw(length, 0.1F, random), shift),
                             shifted(device, draw(length, 0.1F, random).abs(), shift)};
        if (copy) tensors.parameter = shifted(device, draw(length, 1.0F, random).to(*copy), shift);
        const std::string what =
            "adamw_step of " + std::to_string(length) + " elements, gradients in " + c10::toString(gradient);
        check_step(device, tensors, 1.0, 0.125 * 0.3, what);
        const at::Tensor bad = tensors.gradient;
        bad.select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
        check_step(device, tensors, 0.0, std::numeric_limits<double>::infinity(), what + " where apply is 0");
      }
    }
  }
}

}  // namespace strata::conformance::device_checks
