// defines: PlainDevice
// The host's memory as a Device, without a plugin: streams and events do nothing, as on any CPU.
#pragma once
#include <ATen/ops/empty.h>
#include <strata/device.hpp>

#include <memory>
#include <string>

namespace strata::fakes {

class PlainDevice final : public Device {
 public:
  std::string type() const override { return "cpu"; }
  int count() const override { return 1; }
  std::string why() const override { return ""; }
  at::Device select(int) override { return at::kCPU; }
  void on(StreamKind, const std::function<void()>& work) override { work(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  void synchronize() override {}
  DeviceMemory memory() const override { return {}; }
  at::Tensor host_buffer(std::int64_t bytes) override { return at::empty({bytes}, at::kByte); }

 private:
  class NoEvent final : public Event {
   public:
    void record(StreamKind) override {}
    void block(StreamKind) override {}
    void synchronize() override {}
  };
};

}  // namespace strata::fakes
