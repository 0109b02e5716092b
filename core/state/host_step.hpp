#pragma once
#include <strata/device.hpp>

#include <functional>

#include "state/optimizer_state.hpp"

namespace strata::state {

// Updates pieces whose master weights and state lie in host memory while gradients and parameters lie on a device that
// the host cannot address: the gradient is copied to the host, the optimizer sees a piece that is all there, and the
// rounded copy is copied back. Both host buffers hold the largest piece; they are counted as staging on the host.
class HostStep {
 public:
  // Takes the buffers, in memory that the device copies from and to directly; in a dry run they are only counted.
  HostStep(const std::vector<OptimizerState::Entry>& entries, StateStore& store, Device& device);
  ~HostStep();
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  // Calls `measure` with the part on the host, and adds what it summed to part.sums on the device. With scalars.apply 0
  // nothing is called.
  void measure(const Piece& part, const StepScalars& scalars, const std::function<void(const Piece&)>& measure);

  // Calls `update` with the entry's piece on the host; with scalars.apply 0 nothing is called or copied. Blocks the
  // host until the gradient is there and the parameter is on its way.
  void step(OptimizerState::Entry& entry, const StepScalars& scalars, const std::function<void(Piece&)>& update);

 private:
  StateStore& store_;
  std::int64_t gradient_bytes_ = 0;
  std::int64_t parameter_bytes_ = 0;
  at::Tensor gradient_;  // bytes
  at::Tensor parameter_;
};

}  // namespace strata::state
