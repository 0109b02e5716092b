// A RunContext without an engine, for plugins that allocate when a run begins.
#pragma once
#include <strata/plain_device.hpp>
#include <strata/run_context.hpp>

namespace strata::fakes {

class FakeRunContext final : public RunContext {
 public:
  explicit FakeRunContext(at::Device device = at::kCPU) : device_(device), store_(device) {}
  Device& device() override { return device_; }
  StateStore& store() override { return store_; }
  SlotPool& slots() override { return slots_; }

 private:
  PlainDevice device_;
  StateStore store_;
  SlotPool slots_{store_, device_};
};

}  // namespace strata::fakes
