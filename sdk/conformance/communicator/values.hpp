// Inputs of ranks in the cases of communicators, and the expected results.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace strata::conformance {

// Returns the input of `rank`, a function of the arguments alone. Sizes of floats differ so much that every order of
// summation rounds differently; integers have 56 bits, or those of the format.
at::Tensor drawn_values(std::uint64_t seed, int rank, std::int64_t elements, at::ScalarType dtype);

bool same_bytes(const at::Tensor& a, const at::Tensor& b);

// Returns the reduction of all ranks' inputs in rank order, in fp32 for formats of 16 bits and rounded once.
at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOperation reduction);

// Throws Failure unless `found` is the reduction of the inputs: exactly for maxima and integers, and with
// `in_rank_order` for fp32 and fp64; otherwise within the range of all orders of summation in the format.
void check_reduced(const at::Tensor& found, const std::vector<at::Tensor>& inputs, ReduceOperation reduction,
                   bool in_rank_order, const std::string& what);

// A tensor within a larger one whose ends are marked.
class Framed {
 public:
  Framed(std::int64_t elements, at::ScalarType dtype);
  const at::Tensor& tensor() const { return inner_; }
  void check(const std::string& what) const;  // throws Failure if the ends were written

 private:
  at::Tensor whole_;
  at::Tensor inner_;
};

}  // namespace strata::conformance
