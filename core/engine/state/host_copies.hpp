#pragma once
#include <strata/device.hpp>

#include <functional>
#include <span>
#include <vector>

#include "state/optimizer_state.hpp"

namespace strata::state {

// Where the optimizer updates on the host and parameters lie on a device that the host cannot address: it writes its
// rounded copies to a host buffer, from which they are copied to the device. The buffer holds those of the largest flat
// parameter; it is counted as staging on the host.
class HostCopies {
 public:
  // What the largest flat parameter needs.
  static std::int64_t bytes_for(const OptimizerState& state);
  // Takes the buffer, in memory that the device copies from directly; in a dry run it is only counted.
  HostCopies(std::int64_t bytes, StateStore& store, Device& device);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Calls `step`, which updates the pieces of one flat parameter and writes all their copies. Blocks the host until the
  // copies are on their way.
  void step(std::span<Piece* const> pieces, const std::function<void()>& step);

 private:
  StateStore& store_;
  std::int64_t bytes_;
  at::Tensor buffer_;
};

}  // namespace strata::state
