#include "report/gradient_digest.hpp"

#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <strata/split_mix.hpp>

#include <algorithm>
#include <cmath>

namespace strata::report {

namespace {

constexpr std::int64_t period = 65537;

// +1 or -1 for every place of a period, twice in a row, so that any period-long range can be read at once.
at::Tensor make_signs() {
  const at::Tensor signs = at::empty({2 * period}, at::kDouble);
  double* const values = signs.mutable_data_ptr<double>();
  for (std::int64_t place = 0; place < 2 * period; ++place)
    values[place] = (split_mix(static_cast<std::uint64_t>(place % period) * golden_ratio) & 1) != 0 ? 1.0 : -1.0;
  return signs;
}

}  // namespace

GradientDigest::GradientDigest(const std::vector<LayerInfo>& layers)
    : parameters_(layers), signs_(make_signs()), sums_(2 * parameters_.names().size(), 0.0) {}

void GradientDigest::clear() {
  std::fill(sums_.begin(), sums_.end(), 0.0);
}

void GradientDigest::add(const std::string& parameter, std::int64_t begin, const at::Tensor& gradient) {
  const std::size_t number = parameters_.of(parameter);
  if (signs_.device() != gradient.device()) signs_ = signs_.to(gradient.device());
  for (std::int64_t from = 0; from < gradient.numel(); from += period) {
    const at::Tensor part = gradient.narrow(0, from, std::min(period, gradient.numel() - from)).to(at::kDouble);
    sums_[2 * number] += at::dot(part, signs_.narrow(0, (begin + from) % period, part.numel())).item<double>();
    sums_[2 * number + 1] += at::dot(part, part).item<double>();
  }
}

std::vector<ParameterDigest> GradientDigest::over_run(Group& world, at::Device device, double scale) const {
  const c10::NoGradGuard no_grad;
  const at::Tensor sums = at::tensor(sums_, at::kDouble).to(device);
  world.all_reduce(sums, ReduceOperation::Sum).wait();
  const at::Tensor host = sums.cpu();
  const double* const values = host.const_data_ptr<double>();
  std::vector<ParameterDigest> digests;
  for (std::size_t number = 0; number < parameters_.names().size(); ++number)
    digests.push_back(
        {parameters_.names()[number], values[2 * number] / scale, std::sqrt(values[2 * number + 1]) / scale});
  return digests;
}

}  // namespace strata::report
