// A device on CPUs, with the rules of a device whose streams run concurrently. Work is done when it is started, so
// results are right; only the order is checked. Each access to memory, by an operator, a group or an offload device, is
// compared with the earlier ones: if two of them overlap and one writes, an event or the wait for an operation must
// order them, or a real device may carry them out in the other order.
//
//   OrderedDevice device;
//   device.on(StreamKind::Communication, [&] { target.copy_(source); });
//   target.add(1);            // on the compute stream, which waits for nothing
//   device.races();           // "aten::add on Compute reads what aten::copy_ on Communication writes; nothing orders
//   them"
//
// Checks accesses through libtorch's operators. A function that takes a tensor's address and computes without operators
// is not checked.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/device.hpp>
#include <strata/offload_device.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace strata::fakes {

class StreamOrder;

// Device of one thread: operators that the thread runs are work of the device made or selected last on it.
class OrderedDevice : public Device {
 public:
  // Makes a device whose type() returns `type`. Its memory is always host memory, so with "cuda" a run takes the paths
  // of a device with its own memory.
  explicit OrderedDevice(std::string type = "cuda");
  ~OrderedDevice() override;

  std::string type() const override { return type_; }
  int count() const override { return 1; }
  std::string why() const override { return ""; }
  at::Device select(int) override;
  void on(StreamKind stream, const std::function<void()>& work) override;
  std::unique_ptr<Event> make_event() override;
  void synchronize() override;
  DeviceMemory memory() const override { return {}; }
  at::Tensor host_buffer(std::int64_t bytes) override;

  // Returns the pairs of unordered accesses, each once, in the order in which they were found.
  std::vector<std::string> races() const;
  // Returns the number of accesses compared.
  std::int64_t accesses() const;

 private:
  std::string type_;
  std::shared_ptr<StreamOrder> order_;
};

// A group on the OrderedDevice of the calling thread. Like NCCL's, its operations run one after the other on a
// separate stream, which begins after the stream that starts them, and wait() makes the current stream wait for them.
// Like the engine's, a group of one member copies on the current stream, and its wait() does nothing. `inner` moves
// the data.
class OrderedGroup final : public CheckedGroup {
 public:
  explicit OrderedGroup(std::unique_ptr<CheckedGroup> inner);

 private:
  Pending start(const Operation& operation) override;
  std::unique_ptr<CheckedGroup> inner_;
  std::string stream_;
};

// Recorder of host accesses to memory, for the OrderedDevice of the thread that makes the recorder: an offload device
// makes it, and calls it from any thread.
class HostAccesses {
 public:
  HostAccesses();
  void reads(Span memory) const;
  void writes(Span memory) const;

 private:
  std::shared_ptr<StreamOrder> order_;
};

}  // namespace strata::fakes
