// A Device plugin makes one device type usable: it loads the runtime libraries, selects the device of a rank, and
// provides the streams and events that order its work. On the CPU, streams and events do nothing, because work is done
// when the call returns.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/plugin.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace strata {

// A range of host memory.
struct Span {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// The streams of a device. Work in one stream runs in order; streams run concurrently and only events order them.
enum class StreamKind { Compute, Communication, Offload };

// A point in a stream's sequence of work.
class STRATA_EXPORT Event {
 public:
  virtual ~Event();
  // Marks the current end of `stream`, replacing an earlier mark.
  virtual void record(StreamKind stream) = 0;
  // Makes `stream` wait for the marked point; does not block the host. Does nothing before the first record().
  virtual void block(StreamKind stream) = 0;
  // Blocks the host until the marked point is reached.
  virtual void synchronize() = 0;
};

struct DeviceMemory {
  std::int64_t total = 0;      // bytes of the device
  std::int64_t available = 0;  // bytes that this process can still allocate
};

class STRATA_EXPORT Device : public Plugin {
 public:
  ~Device() override;
  // Returns "cpu" or "cuda": the `device:` value, which is libtorch's name of the device type.
  virtual std::string type() const = 0;
  // Returns the number of devices visible to this process. 0 means unusable; why() returns the reason in one sentence.
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
  // Returns an uninitialised uint8 tensor [bytes] in host memory that is copied to and from the device without a
  // staging copy (pinned memory, if the device has it).
  virtual at::Tensor host_buffer(std::int64_t bytes) = 0;
  // Makes copies from and to the caller's host memory as fast as with host_buffer(), until page_unlock() of the same
  // span. Returns false if the system does not allow it. Does nothing if the device's memory is host memory.
  virtual bool page_lock(Span memory);
  virtual void page_unlock(Span memory);
};

}  // namespace strata
