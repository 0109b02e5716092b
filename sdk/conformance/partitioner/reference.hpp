// Expected results of a partitioner's run, computed from the world alone: values that encode their place, and sums that
// are exact in every format, so that no order of summation changes them.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/partitioner/course.hpp"

namespace strata::conformance {

// Thread-safe, for ranks that are threads.
class PartitionReference {
 public:
  // `tolerance`: allowed relative difference of results. At 0 parameters have all bit patterns, and gradients are whole
  // numbers times powers of two; otherwise both are small whole numbers.
  PartitionReference(const PartitionWorld& world, double tolerance) : world_(world), tolerance_(tolerance) {}

  // Returns a whole flat parameter at its write of this number, in its dtype.
  at::Tensor values(int flat, int number);
  // Returns one rank's gradient of this number, in the gradient's dtype.
  at::Tensor gradient(int flat, int rank, int number) const;
  // Returns the sum over all ranks of the gradients of these numbers, in fp64, and the allowed difference of an
  // element: proportional to the sum of magnitudes, because terms that cancel were rounded before.
  struct Sum {
    at::Tensor values;
    double allowed = 0.0;
  };
  const Sum& sum(int flat, const std::vector<int>& numbers);

  // Returns the first element that differs from the expected one; NaN equals NaN. `allowed`: allowed differences;
  // without, proportional to the largest. With a tolerance, only elements that are not finite are compared if an
  // expected one is not finite.
  std::optional<std::int64_t> first_wrong(const at::Tensor& found, const at::Tensor& expected,
                                          std::optional<double> allowed = std::nullopt) const;

 private:
  const FlatParameterInfo& info(int flat) const { return world_.infos[static_cast<std::size_t>(flat)]; }

  const PartitionWorld& world_;
  double tolerance_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, at::Tensor> values_;
  std::map<std::pair<int, std::vector<int>>, Sum> sums_;
};

}  // namespace strata::conformance
