// What ranks send in the cases of communicators, and what must come of it.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace strata::conformance {

// What `rank` brings: a function of the arguments alone. Floats differ so much in size that every order of summation
// rounds differently; integers have 56 bits, or those that the format has.
at::Tensor drawn_values(std::uint64_t seed, int rank, std::int64_t elements, at::ScalarType dtype);

bool same_bytes(const at::Tensor& a, const at::Tensor& b);

// The reduction of all ranks' inputs in rank order, in fp32 for formats of 16 bits and rounded once.
at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOperation reduction);

// Throws Failure unless `found` is the reduction of the inputs: exactly for maxima and integers, and for fp32 and fp64
// where `in_rank_order`; else within what some order of summation in the format gives.
void check_reduced(const at::Tensor& found, const std::vector<at::Tensor>& inputs, ReduceOperation reduction,
                   bool in_rank_order, const std::string& what);

// A tensor in the middle of a larger one whose ends are marked.
class Framed {
 public:
  Framed(std::int64_t elements, at::ScalarType dtype);
  const at::Tensor& tensor() const { return inner_; }
  void check(const std::string& what) const;  // throws Failure where the ends were written

 private:
  at::Tensor whole_;
  at::Tensor inner_;
};

}  // namespace strata::conformance
