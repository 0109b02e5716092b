// Times of a step's collectives over the tensor group between linear layers, or that gather their inputs.
#pragma once
#include <cstdint>
#include <optional>

namespace strata::stage {

// Seconds on the host's clock; 0 on a GPU, for which the host does not wait. Some collectives overlap with a product:
// started before it, waited for after it; the others run alone.
struct TensorTimes {
  double alone = 0.0;            // waits for collectives that run alone
  double beside = 0.0;           // waits for the rest of collectives beside a product
  std::int64_t alone_bytes = 0;  // logical_bytes() of each kind
  std::int64_t beside_bytes = 0;

  double waited() const { return alone + beside; }
  void add(const TensorTimes& other) {
    alone += other.alone;
    beside += other.beside;
    alone_bytes += other.alone_bytes;
    beside_bytes += other.beside_bytes;
  }
  // Returns the fraction of overlapped collectives' time that products hide, if bytes take as long as without overlap.
  std::optional<double> hidden() const {
    if (alone <= 0.0 || alone_bytes == 0 || beside_bytes == 0) return std::nullopt;
    const double expected = alone / static_cast<double>(alone_bytes) * static_cast<double>(beside_bytes);
    return beside < expected ? 1.0 - beside / expected : 0.0;
  }
};

}  // namespace strata::stage
