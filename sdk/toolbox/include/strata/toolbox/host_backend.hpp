// What a communicator for tensors in host memory is written with: it moves bytes, and the rest of a c10d backend (the
// queue, the tensors' rules, what happens after an error) is made of that.
#pragma once
#include <strata/communicator.hpp>
#include <strata/toolbox/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace strata {

// One message under way; the caller leaves its memory alone until wait() has returned.
class HostMessage {
 public:
  // A message may be dropped unwaited when an error passes: its memory is freed next, and must not be touched any more.
  virtual ~HostMessage() = default;
  // Blocks until the message has left or arrived, however long: the engine knows whether the peer can still come, and
  // calls HostTransport::abort() when it cannot. Throws EnvironmentError naming the peer when it is lost.
  virtual void wait() = 0;
};

// Collectives of one group over bytes in host memory. They are called one after the other, on one thread; each is
// called by all ranks of the group with the same sizes, returns when this rank has its result, waits as HostMessage
// does, and throws EnvironmentError naming the peer when one is lost. Reductions sum in rank order
// (reduce_in_rank_order), so that every algorithm gives the same bits.
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  // output: size parts of `part_bytes`; this rank's input may lie at its place in output.
  virtual void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) = 0;
  // output and input: size parts of `part_bytes`, that do not overlap.
  virtual void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) = 0;
  // input: size parts of `part_elements`; output may be this rank's part of it.
  virtual void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                              Reduction reduction) = 0;
  virtual void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) = 0;
  // The result lands in root's data only; the others' data is untouched.
  virtual void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) = 0;
  virtual void broadcast(std::byte* data, std::int64_t bytes, int root) = 0;
  virtual void barrier() = 0;
};

// What connects this rank to the others of its group.
class HostTransport {
 public:
  virtual ~HostTransport() = default;
  // In messages: "gloo".
  virtual std::string name() const = 0;
  virtual HostCollectives& collectives() = 0;
  // Begin to move a message to or from one peer, without waiting for it: two ranks that both send first must both get
  // on. Messages of one pair and direction arrive in the order in which they were posted. Called by any thread, also
  // while a collective runs.
  virtual std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) = 0;
  virtual std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) = 0;
  // Ends every wait, of now and later, with EnvironmentError; does not wait for peers. Called by any thread, more than
  // once.
  virtual void abort() = 0;
};

// The backend that Communicator::connect returns, over a transport that is connected. Collectives run one after the
// other on a thread of its own; sends and receives are posted at once by the caller. After the first error every
// operation fails with it. It offers what <strata/communicator.hpp> asks for, of contiguous tensors in host memory.
c10::intrusive_ptr<c10d::Backend> make_host_backend(const GroupSetup& setup, std::unique_ptr<HostTransport> transport);

}  // namespace strata
