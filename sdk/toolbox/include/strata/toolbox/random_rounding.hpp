// Stochastic rounding of a bf16 master after an update in fp32. Rounding to nearest would lose every change of less
// than 1/512 of a weight; stochastic rounding rounds up with the probability that makes the mean exact (Gupta et al.,
// arXiv:1502.02551).
//
// The random number is a function of (run's seed, parameter name, update, element of the whole parameter) alone, so
// every layout gives the bits of one rank, for any cut of the parameter. Two rounds of multiplying and mixing 32 bits
// are random enough for this.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/optimizer.hpp>

#include <cstdint>

namespace strata {

class RandomRounding {
 public:
  // Makes the rounding of the update with these scalars.
  RandomRounding(const PieceInfo& piece, const StepScalars& scalars);

  // True if this master of a piece is rounded stochastically.
  static bool rounds(const at::Tensor& master) { return master.scalar_type() == at::kBFloat16; }

  // Rounds `values`, elements of the piece from `begin` on, to bf16. Numbers that are not finite stay unchanged.
  void round(float* values, std::int64_t begin, std::int64_t count) const;
  // Returns an fp32 tensor on any device, the piece's elements from `begin` on in order, rounded to the same bits.
  at::Tensor round(const at::Tensor& values, std::int64_t begin) const;

 private:
  std::uint32_t key(std::int64_t element) const;  // key of elements with the same upper 32 bits

  std::uint64_t seed_;
  std::int64_t begin_;  // begin of the piece
  PartPlaces places_;
};

}  // namespace strata
