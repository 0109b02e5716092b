#pragma once
#include <c10/util/intrusive_ptr.h>
#include <strata/plugin.hpp>

#include <chrono>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace strata {

struct GroupSetup {
  std::string name;  // unique in the run: "data[pipeline=0]"
  int rank = 0;      // of this process in the group
  int size = 1;
  std::chrono::milliseconds timeout{};  // how long connecting may take
  std::string interface_address;        // the local address to bind to; loopback unless the launch says otherwise
  int local_rank = 0;                   // picks the device
};

class STRATA_EXPORT Communicator : public Plugin {
 public:
  ~Communicator() override;
  // The device types whose tensors it moves: {"cpu"}, {"cuda"}.
  virtual std::vector<std::string> device_types() const = 0;
  // Empty where it can be used here, else the reason in one sentence ("no CUDA device is visible to this process").
  virtual std::string unavailable() const = 0;
  // Connects this rank to the group's others and returns a backend that offers allgather_base, reduce_scatter_base,
  // allreduce, broadcast, reduce, alltoall_base (equal parts), send, recv and barrier on contiguous tensors, kept alive
  // until the operation has ended. An operation waits for its peers without a deadline: one of them may compute for an
  // hour. The engine finds out when one can never come, and calls abort(), from any thread: every operation under way
  // and every later one then fails within a second. A lost connection fails at once, with an exception that names the
  // peer. The engine calls shutdown(), which must not wait for peers, before it drops the backend. [collective] over
  // the group; blocks the host, at most for the timeout, then throws EnvironmentError. `store` is the run's key-value
  // store, already prefixed with the group's name.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupSetup& setup) = 0;
};

}  // namespace strata
