#pragma once
#include <strata/device.hpp>

#include <functional>
#include <span>
#include <vector>

#include "state/optimizer_state.hpp"

namespace strata::state {

// Host buffer for an optimizer that updates on the CPU parameters of a device that the host cannot address: it receives
// the rounded copies, which are then copied to the device. The buffer has the size of the largest flat parameter's
// copies; it is counted as staging on the host.
class HostCopies {
 public:
  // Returns the bytes for the largest flat parameter.
  static std::int64_t bytes_for(const OptimizerState& state);
  // Allocates the buffer, in memory that the device copies from directly; in a dry run it is only counted.
  HostCopies(std::int64_t bytes, StateStore& store, Device& device);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Calls `step`, which updates the pieces of one flat parameter and writes all their copies. Blocks the host until the
  // copies are enqueued.
  void step(std::span<Piece* const> pieces, const std::function<void()>& step);

 private:
  StateStore& store_;
  std::int64_t bytes_;
  at::Tensor buffer_;
};

}  // namespace strata::state
