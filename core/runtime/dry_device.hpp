// defines: DryDevice
#pragma once
#include <ATen/ops/empty.h>
#include <strata/device.hpp>

#include <functional>
#include <memory>
#include <string>

namespace strata::runtime {

// Stands in for the run's device in a dry run, so that one can be made of a GPU's run on a machine without it: nothing is queued.
class DryDevice final : public Device {
 public:
  std::string type() const override { return "meta"; }
  int count() const override { return 1; }
  std::string why() const override { return ""; }
  at::Device select(int) override { return at::kMeta; }
  void on(StreamKind, const std::function<void()>& work) override { work(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  void synchronize() override {}
  DeviceMemory memory() const override { return {}; }
  at::Tensor host_buffer(std::int64_t bytes) override { return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kMeta)); }

 private:
  class NoEvent final : public Event {
   public:
    void record(StreamKind) override {}
    void block(StreamKind) override {}
    void synchronize() override {}
  };
};

}  // namespace strata::runtime
