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
  int rank = 0;      // rank of this process within the group
  int size = 1;
  std::chrono::milliseconds timeout{};  // time limit for connecting
  std::string interface_address;        // local address to bind to; loopback unless the launch sets another
  int local_rank = 0;                   // selects the device
};

// Every rank has its own instance. Ranks may be threads of one process, as in tests, so state of a group belongs in the
// group's backend.
class STRATA_EXPORT Communicator : public Plugin {
 public:
  ~Communicator() override;
  // Returns the device types whose tensors it can move: {"cpu"}, {"cuda"}.
  virtual std::vector<std::string> device_types() const = 0;
  // Returns "" if the plugin can be used on this machine, otherwise the reason in one sentence ("no CUDA device is
  // visible to this process").
  virtual std::string unavailable() const = 0;
  // Connects this rank to the other ranks of the group. [collective] over the group; blocks the host for at most the
  // timeout, then throws EnvironmentError. `store` is the run's key-value store, already prefixed with the group's
  // name. The backend it returns must offer allgather_base, reduce_scatter_base, allreduce, broadcast, reduce,
  // alltoall_base (equal parts), send, recv and barrier on contiguous tensors, and keep the tensors alive until the
  // operation has ended. An operation waits for its peers without a deadline, because a peer may compute for an hour.
  // When the engine finds that a peer will never make the matching call, it calls abort(), from any thread: every
  // pending and later operation must then fail within a second. If a connection is lost, operations on it must fail at
  // once with an exception that names the peer.
  // The engine calls shutdown() before it drops the backend; shutdown() must not wait for peers.
  virtual c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupSetup& setup) = 0;
};

}  // namespace strata
