// A c10d backend for tensors in host memory. The communicator implements a HostTransport, which moves bytes; the
// backend adds the queue, the checks of tensors and error handling.
#pragma once
#include <strata/communicator.hpp>
#include <strata/toolbox/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace strata {

// Pending message. Do not touch its memory until wait() has returned.
class HostMessage {
 public:
  // After an error a message may be destroyed without wait(); its memory is freed next and must no longer be used.
  virtual ~HostMessage() = default;
  // Blocks until the message has been sent or received, without a timeout: the engine aborts the backend, and so calls
  // HostTransport::abort(), when the peer will never make the matching call. Throws EnvironmentError naming the peer if
  // the connection is lost.
  virtual void wait() = 0;
};

// Collectives of one group over bytes in host memory. All ranks of the group call them one after the other, each rank
// on one thread, with the same sizes. Each returns when this rank has its result, waits without a timeout as
// HostMessage does, and throws EnvironmentError naming the peer if a connection is lost. Reductions sum in rank order
// (reduce_in_rank_order), so that every algorithm gives the same bits.
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  // Gathers one part of `part_bytes` per rank into output; input may be this rank's part of output.
  virtual void all_gather(std::byte* output, const std::byte* input, std::int64_t part_bytes) = 0;
  // Exchanges parts: output and input have one part of `part_bytes` per rank and do not overlap.
  virtual void all_to_all(std::byte* output, const std::byte* input, std::int64_t part_bytes) = 0;
  // Sums and scatters input, which has one part of `part_elements` per rank; output may be this rank's part of input.
  virtual void reduce_scatter(std::byte* output, const std::byte* input, std::int64_t part_elements,
                              Reduction reduction) = 0;
  virtual void all_reduce(std::byte* data, std::int64_t elements, Reduction reduction) = 0;
  // Reduces into root's data; other ranks' data is unchanged.
  virtual void reduce(std::byte* data, std::int64_t elements, int root, Reduction reduction) = 0;
  virtual void broadcast(std::byte* data, std::int64_t bytes, int root) = 0;
  virtual void barrier() = 0;
};

// Connection of this rank to the other ranks of its group.
class HostTransport {
 public:
  virtual ~HostTransport() = default;
  // Returns the name for messages: "gloo".
  virtual std::string name() const = 0;
  virtual HostCollectives& collectives() = 0;
  // Starts a message to or from one peer without waiting: two ranks that both send first must not deadlock. Messages of
  // one pair and direction arrive in the order in which they were posted. Called from any thread, also while a
  // collective runs.
  virtual std::unique_ptr<HostMessage> send(int peer, const std::byte* data, std::int64_t bytes) = 0;
  virtual std::unique_ptr<HostMessage> receive(int peer, std::byte* data, std::int64_t bytes) = 0;
  // Ends every current and later wait with EnvironmentError; does not wait for peers. Called from any thread, possibly
  // more than once.
  virtual void abort() = 0;
};

// Makes the backend for Communicator::connect from a connected transport. Collectives run one after the other on the
// backend's own thread; sends and receives start on the caller's thread. After the first error every later
// collective fails with the same error. Supports all operations of <strata/communicator.hpp> on contiguous tensors in
// host memory.
c10::intrusive_ptr<c10d::Backend> make_host_backend(const GroupSetup& setup, std::unique_ptr<HostTransport> transport);

}  // namespace strata
