// How ranks that work on their own (on files) come back together: all of them see the same outcome, and act on it.
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

// Calls `work` until it has returned false on every rank: each call does a part of this rank's work, of seconds at
// most, and says whether there is more. Between two calls the ranks meet, so that none waits for another's whole work,
// which may take longer than a collective may wait. What `work` throws ends the rounds on all ranks. [collective] over
// `world`; numbers travel on `device`.
Outcome work_in_rounds(Group& world, at::Device device, const std::function<bool()>& work);

}  // namespace strata::runtime
