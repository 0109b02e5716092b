// Two fingerprints of each parameter's gradient, independent of its division over ranks and buckets.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>
#include <strata/optimizer.hpp>

#include <string>
#include <vector>

#include "step/parameter_numbers.hpp"

namespace strata::report {

struct ParameterDigest {
  std::string parameter;
  double projection = 0.0;  // the sum of the elements, each with a sign that its index in the parameter decides
  double norm = 0.0;
};

// [Note: one lost element shows]
// Losses and norms hardly change when a strategy forgets one element of a gradient: of a million, it carries a
// millionth of the squared norm. In a sum with signs that look random it weighs 1/sqrt(n) of the norm instead, a
// thousandth, and rounding in fp32 stays a thousand times below that. An element that is counted twice, or lands in
// another place, shows alike. The signs repeat after a prime number of elements.
class GradientDigest {
 public:
  explicit GradientDigest(const std::vector<LayerInfo>& layers);

  void clear();
  // Adds elements [begin, ...) of a parameter's gradient; over the ranks, every element once. Blocks the host on the
  // elements' device. [any rank]
  void add(const std::string& parameter, std::int64_t begin, const at::Tensor& gradient);
  // Returns the sums over all ranks, each element divided by `scale`. The sums travel in a tensor on `device`.
  // [collective]
  std::vector<ParameterDigest> over_run(Group& world, at::Device device, double scale) const;

 private:
  step::ParameterNumbers parameters_;
  at::Tensor signs_;          // fp64, two periods
  std::vector<double> sums_;  // by parameter: projection, squared norm
};

}  // namespace strata::report
