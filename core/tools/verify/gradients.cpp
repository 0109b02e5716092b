#include "tools/verify/gradients.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>

namespace strata::verify {

namespace {

using compare::GradientSums;

// The larger difference of the two sums, relative to the norm of `right`.
double apart(const GradientSums& one, const GradientSums& right) {
  const bool broken = !std::isfinite(one.projection) || !std::isfinite(one.norm);
  if (!std::isfinite(right.projection) || !std::isfinite(right.norm)) return broken ? 0.0 : INFINITY;
  if (broken) return INFINITY;
  const double off = std::max(std::abs(one.projection - right.projection), std::abs(one.norm - right.norm));
  return off == 0.0 ? 0.0 : off / std::max(right.norm, 1e-30);
}

double apart(double one, double right) {
  return apart(GradientSums{one, std::abs(one)}, GradientSums{right, std::abs(right)});
}

// Both sums are the right ones times the same number.
std::optional<double> factor(const GradientSums& one, const GradientSums& right) {
  const double by_norm = one.norm / right.norm, by_projection = one.projection / right.projection;
  const bool same = std::abs(by_norm - by_projection) <= 0.01 * std::abs(by_norm);
  return same && std::isfinite(by_norm) ? std::optional(by_norm) : std::nullopt;
}

std::optional<WrongGradient> number_beyond(double one, double right, double bound) {
  const double off = apart(one, right);
  if (off <= bound) return std::nullopt;
  return WrongGradient{"", off, bound, one / right};
}

}  // namespace

double Bounds::gradient(std::size_t step) const {
  const auto ranks = static_cast<double>(tensor_ranks);
  const double sums = std::sqrt(static_cast<double>(tokens) * (1.0 + (ranks + 1.0) / 2.0 - 1.0 / ranks));
  // Noise that has nothing to do with a vector makes it longer by b where it is sqrt(2 b) of its length. Neither has it
  // to do with the roundings, so their squares add.
  return std::hypot((step == 0 ? 2.0 : 4.0) * sums * rounding, std::sqrt(2.0 * declared));
}

double Bounds::norm(std::size_t step) const {
  return std::max((step == 0 ? 4.0 : 8.0) * rounding, declared);
}

double Bounds::loss() const {
  constexpr double of_sum = 2e-6;  // of the mean itself, in fp32
  return std::max({of_sum, 2.0 * rounding / std::sqrt(static_cast<double>(tokens)), declared});
}

Agreement compare(const Recorded& run, const Recorded& plain, const Bounds& bounds) {
  Agreement agreement;
  for (std::size_t step = 0; step < plain.gradients.size() && !agreement.wrong; ++step) {
    WrongStep wrong{step, {}, {}, {}};
    const double whole = plain.norms[step];
    if (!std::isfinite(whole) || !std::isfinite(plain.losses[step]))
      throw UserError(
          "the loss or gradient norm of the reference run is not finite in step {}, so nothing can be compared; set a "
          "smaller loss scale, or another precision",
          step + 1);
    if (whole == 0.0)
      throw UserError(
          "every gradient of the reference run is zero in step {}, so nothing can be compared: the loss does not "
          "depend on the trained parameters, or the device computes nothing",
          step + 1);
    for (const auto& [name, right] : plain.gradients[step]) {
      const auto found = run.gradients[step].find(name);
      const GradientSums mine = found == run.gradients[step].end() ? GradientSums{NAN, NAN} : found->second;
      const double bound = std::max(bounds.gradient(step), bounds.least() * whole / std::max(right.norm, 1e-30));
      const double off = apart(mine, right);
      agreement.furthest = std::max(agreement.furthest, off / bound);
      if (off > bound) wrong.gradients.push_back({name, off, bound, factor(mine, right)});
    }
    wrong.loss = number_beyond(run.losses[step], plain.losses[step], bounds.loss());
    wrong.norm = number_beyond(run.norms[step], whole, bounds.norm(step));
    if (!wrong.gradients.empty() || wrong.loss || wrong.norm) agreement.wrong = std::move(wrong);
  }
  agreement.parameters = plain.gradients.empty() ? 0 : plain.gradients.front().size();
  agreement.steps = plain.gradients.size();
  return agreement;
}

}  // namespace strata::verify
