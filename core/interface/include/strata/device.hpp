// A Device plugin makes one device type usable: it loads the run-time libraries, picks the device of a rank, and gives
// the streams and events that order its work. On the CPU streams and events do nothing: work is done when the call
// returns.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/plugin.hpp>

#include <cstdint>
#include <functional>
#include <memory>

namespace strata {

// The queues a device has. Work in one queue runs in order; queues run beside each other and are ordered by events
// only.
enum class StreamKind { Compute, Communication, Offload };

// A point in a stream's order.
class STRATA_EXPORT Event {
 public:
  virtual ~Event();
  // Marks the present end of `stream`; a later record replaces it.
  virtual void record(StreamKind stream) = 0;
  // Makes `stream` wait for the marked point; does not block the host. Without a record it does nothing.
  virtual void block(StreamKind stream) = 0;
  // Blocks the host until the marked point is reached.
  virtual void synchronize() = 0;
};

struct DeviceMemory {
  std::int64_t total = 0;      // bytes the device has
  std::int64_t available = 0;  // bytes this process could still take
};

class STRATA_EXPORT Device : public Plugin {
 public:
  ~Device() override;
  // "cpu", "cuda": the `device:` value, and libtorch's name of the device type.
  virtual std::string type() const = 0;
  // How many devices this process can see; 0 means unusable here, and why() says the reason in one sentence.
  virtual int count() const = 0;
  virtual std::string why() const = 0;
  // Makes the device of this local rank current and returns it. Throws EnvironmentError when there is none.
  virtual at::Device select(int local_rank) = 0;
  // Runs `work` with `stream` as libtorch's current stream. Does not block the host.
  virtual void on(StreamKind stream, const std::function<void()>& work) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Blocks the host until every stream is empty.
  virtual void synchronize() = 0;
  virtual DeviceMemory memory() const = 0;
  // An uninitialised host buffer that copies to and from the device without a staging copy (pinned where that exists).
  virtual at::Tensor host_buffer(std::int64_t bytes) = 0;
};

}  // namespace strata
