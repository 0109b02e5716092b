// A run as its plugins see it once the rank's device and memory are there.
#pragma once
#include <strata/device.hpp>
#include <strata/export.hpp>
#include <strata/state_store.hpp>

namespace strata {

class STRATA_EXPORT RunContext {
 public:
  virtual ~RunContext();
  // In a dry run one of meta tensors, on which nothing runs.
  virtual Device& device() = 0;
  // For memory that outlives a call: counted by category and tier, in a dry run too.
  virtual StateStore& store() = 0;
  // For memory of one call, counted too.
  virtual SlotPool& slots() = 0;
};

}  // namespace strata
