// Messages between two ranks through the rings of the arena. A ring is a stream: each message is its length, then its
// bytes; a message that does not fit continues when the reader has made room. Messages of one pair and direction match
// in the order in which they were posted.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "arena.hpp"

namespace strata::shm_communicator {

// One pending message; its memory must not be touched until it is done.
struct PairMessage {
  int peer = 0;
  bool outgoing = false;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;   // of the 8 bytes of its length and then of its own bytes
  std::uint64_t length = 0;  // as written in the ring
  bool done = false;
  std::exception_ptr error;
};

// Posting and waiting threads move data; in between a background thread does, so that a long message arrives while its
// sender computes. The thread starts with the first message.
class ShmPairs {
 public:
  explicit ShmPairs(Arena& arena);
  ~ShmPairs();
  std::shared_ptr<PairMessage> send(int peer, const std::byte* data, std::int64_t bytes);
  std::shared_ptr<PairMessage> receive(int peer, std::byte* data, std::int64_t bytes);
  // Blocks until the message has been sent or received. Throws EnvironmentError if the peer has left the group or after
  // Arena::abort(), Bug if the two ends have different sizes. After the first error all messages fail with it.
  void wait(PairMessage& message);
  // Drops a message whose memory will be freed. If it is still pending, all messages fail, because the ring holds part
  // of it. After return nothing touches the memory.
  void drop(const PairMessage& message);
  // After Arena::abort(): fails pending messages and ends the thread.
  void stop();

 private:
  using Queue = std::deque<std::shared_ptr<PairMessage>>;
  std::shared_ptr<PairMessage> post(std::shared_ptr<PairMessage> message);
  bool advance();  // moves data without blocking; returns true if any moved
  bool advance(PairMessage& message);
  bool push(PairMessage& message);
  bool pull(PairMessage& message);
  void fail_all(const std::exception_ptr& error);
  bool idle() const;
  void serve();

  Arena& arena_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Queue> outgoing_;  // by peer
  std::vector<Queue> incoming_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace strata::shm_communicator
