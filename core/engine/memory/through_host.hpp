// Transfers between a device and a home that only host memory reaches, such as a disk: every place of the staging
// memory on the device has a counterpart in page-locked host memory.
#pragma once
#include <strata/offload_device.hpp>
#include <strata/state_store.hpp>

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

namespace strata::memory {

// Copies between the two memories are made on the compute stream (see [Note: staging memory]). A read's copy starts
// when the bytes are on the host, in its wait(). A write's copy starts at once, and a thread writes the bytes home when
// the device has finished it, so that the host need not wait for the device. Calls of the homes never overlap.
class ThroughHost {
 public:
  ThroughHost(StateStore& store, Device& device) : store_(store), device_(device) {}
  ~ThroughHost();
  ThroughHost(const ThroughHost&) = delete;
  ThroughHost& operator=(const ThroughHost&) = delete;

  // Grows the host memory to at least `bytes`, with nothing in flight. Throws EnvironmentError if there is not enough.
  void reserve(std::int64_t bytes);

  // Starts a transfer. `staged`: bytes on the device, at `place` of the staging memory. Before that place is reused, a
  // write must have been waited for, and the device must have reached the work enqueued by a read's wait().
  std::unique_ptr<Transfer> read(OffloadDevice& home, Region region, std::int64_t place, const at::Tensor& staged);
  std::unique_ptr<Transfer> write(OffloadDevice& home, Region region, std::int64_t place, const at::Tensor& staged);

 private:
  using Started = std::unique_ptr<Transfer>;  // transfer of a home
  struct Write {
    std::unique_ptr<Event> copied;
    OffloadDevice* home;
    Region region;
    Span source;
    std::promise<Started> started;
  };
  class Read;
  class Written;
  at::Tensor on_host(std::int64_t place, std::int64_t bytes) const;
  void let_go();
  void send();  // body of the thread

  StateStore& store_;
  Device& device_;
  at::Tensor memory_;
  bool locked_ = false;
  std::int64_t length_ = 0;

  std::mutex calls_;  // guards calls of the homes
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Write> writes_;
  bool ends_ = false;
  std::thread thread_;  // started by the first write
};

}  // namespace strata::memory
