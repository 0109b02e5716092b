// Device and memory of a run, for its plugins.
#pragma once
#include <strata/device.hpp>
#include <strata/export.hpp>
#include <strata/state_store.hpp>

namespace strata {

class STRATA_EXPORT RunContext {
 public:
  virtual ~RunContext();
  // Returns the device; in a dry run a device of meta tensors, on which nothing runs.
  virtual Device& device() = 0;
  // Returns the store for memory that outlives a call: counted by category and tier, in a dry run too.
  virtual StateStore& store() = 0;
  // Returns the pool of device buffers for values that live within a step, such as gathered parameters; counted too.
  virtual SlotPool& slots() = 0;
};

}  // namespace strata
