// Work that each rank does by itself (on files) with one outcome that all ranks see and act on.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <functional>
#include <string>

namespace strata::runtime {

enum class Failure { None, Damaged, User, Environment, Bug };  // as in <strata/error.hpp>; Damaged: a DamagedCheckpoint

// Of all ranks: the lowest rank's that failed.
struct Outcome {
  Failure failure = Failure::None;
  std::string text;  // the error's

  // Throws what the failure names; nothing when all went well.
  void check() const;
};

// Calls `work` until it has returned false on every rank. Each call does a part of this rank's work, seconds at most,
// and returns whether there is more. The ranks meet after each call, so that no collective waits for a rank's whole
// work. What `work` throws ends the rounds on all ranks. [collective] over `world`; numbers travel on `device`.
Outcome work_in_rounds(Group& world, at::Device device, const std::function<bool()>& work);

}  // namespace strata::runtime
