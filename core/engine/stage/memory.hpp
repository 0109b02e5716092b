#pragma once
#include <strata/plain_device.hpp>
#include <strata/run_context.hpp>
#include <strata/state_store.hpp>

#include "stage/setup.hpp"

namespace strata::stage {

// Device of a rank, and the memory that outlives a call or belongs to one. In a dry run a device of meta tensors.
class Memory final : public RunContext {
 public:
  // Selects the device and begins the run of every plugin. Throws what the plugins throw.
  explicit Memory(const Setup& setup);

  Device& device() override { return *device_; }
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }
  const StateStore& store() const { return store_; }
  at::Device tensors() const { return store_.device(); }  // where tensors of the run are

 private:
  PlainDevice dry_device_{at::kMeta};
  NamedPlugin<Device> device_;
  StateStore store_;
  SlotPool slots_;
  const PluginsStop stop_;
};

}  // namespace strata::stage
