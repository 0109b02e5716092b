// What a partitioner's run must give, computed from the world alone: values that say where they belong, and sums that
// are exact in every format, so that no order of adding changes them.
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

// Ranks that are threads may use it.
class PartitionReference {
 public:
  // `tolerance`: what results may differ by, relative. At 0 parameters are all the bit patterns that there are, and
  // gradients whole numbers times powers of two; else both are small whole numbers.
  PartitionReference(const PartitionWorld& world, double tolerance) : world_(world), tolerance_(tolerance) {}

  // All of a flat parameter at its write of this number, in its dtype.
  at::Tensor values(int flat, int number);
  // One rank's gradient of this number, in the gradient's dtype.
  at::Tensor gradient(int flat, int rank, int number) const;
  // The sum over all ranks of those of these numbers, in fp64, and what an element may differ by: in proportion to what
  // the numbers add up to without their signs, as terms that cancel were rounded before.
  struct Sum {
    at::Tensor values;
    double allowed = 0.0;
  };
  const Sum& sum(int flat, const std::vector<int>& numbers);

  // The first element that is not the expected one; one that is not a number equals another. `allowed`: how far apart
  // they may be, else in proportion to the largest. With a tolerance, where an expected one is not finite only those
  // that are not are compared.
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
