#pragma once
#include <ATen/ops/empty.h>
#include <strata/device.hpp>

#include <functional>
#include <memory>
#include <string>

namespace strata {

// A Device without a plugin, whose streams and events do nothing: for host memory in unit tests, and for meta tensors
// in a dry run, which therefore works for a GPU run on a machine without a GPU.
class PlainDevice : public Device {
 public:
  explicit PlainDevice(at::Device device) : device_(device) {}
  std::string type() const override { return device_.str(); }
  int count() const override { return 1; }
  std::string why() const override { return ""; }
  at::Device select(int) override { return device_; }
  void on(StreamKind, const std::function<void()>& work) override { work(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<NoEvent>(); }
  void synchronize() override {}
  DeviceMemory memory() const override { return {}; }
  at::Tensor host_buffer(std::int64_t bytes) override {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  }

 private:
  class NoEvent final : public Event {
   public:
    void record(StreamKind) override {}
    void block(StreamKind) override {}
    void synchronize() override {}
  };
  at::Device device_;
};

}  // namespace strata
