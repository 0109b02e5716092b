// Work that each rank does separately (on files), with one outcome equal on all ranks.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <functional>
#include <string>

namespace strata::checkpoint {

enum class Failure { None, Damaged, User, Environment, Bug };  // as in <strata/error.hpp>; Damaged: a DamagedCheckpoint

// Outcome of all ranks: that of the lowest rank that failed.
struct Outcome {
  Failure failure = Failure::None;
  std::string text;  // text of the error

  // Throws the failure's error, if any.
  void check() const;
};

// Calls `work` until it has returned false on every rank. Each call does a part of this rank's work, seconds at most,
// and returns true if there is more. The ranks meet after each call, so no collective waits for a rank's whole work. An
// exception of `work` ends the rounds on all ranks. [collective] over `world`; numbers travel on `device`.
Outcome work_in_rounds(Group& world, at::Device device, const std::function<bool()>& work);

}  // namespace strata::checkpoint
