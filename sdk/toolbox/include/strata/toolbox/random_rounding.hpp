// How a master of bf16 is rounded after an update in fp32. To nearest, a change of less than 1/512 of a weight would be
// lost every time; rounded at random, it is made as often as it should be (Gupta et al., arXiv:1502.02551): up with the
// probability that makes the mean right.
//
// The random number is a function of (run's seed, parameter name, update, element of the whole parameter) alone, so the
// bits are those of one rank on every layout, whatever cuts the parameter. Two rounds of multiplying and mixing 32 bits
// are random enough for this.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/optimizer.hpp>

#include <cstdint>

namespace strata {

class RandomRounding {
 public:
  // Of the update with these scalars.
  RandomRounding(const PieceInfo& piece, const StepScalars& scalars);

  // Whether this tensor of a piece is rounded so.
  static bool rounds(const at::Tensor& master) { return master.scalar_type() == at::kBFloat16; }

  // Rounds `values`, elements of the piece from `begin` on, to numbers of bf16. What is not finite stays as it is.
  void round(float* values, std::int64_t begin, std::int64_t count) const;
  // The same of an fp32 tensor on any device, whose elements are the piece's from `begin` on in order; the same bits.
  at::Tensor round(const at::Tensor& values, std::int64_t begin) const;

 private:
  std::uint32_t key(std::int64_t element) const;  // of elements with the same upper 32 bits

  std::uint64_t seed_;
  std::int64_t begin_;  // of the piece
  PartPlaces places_;
};

}  // namespace strata
