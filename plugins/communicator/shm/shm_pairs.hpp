// Messages between two ranks, through the rings of the arena. A ring is a stream: each message is its length, then its
// bytes; what does not fit goes on when the reader has taken some. Messages of one pair and direction meet in the order
// in which they were posted.
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

// One message under way; its memory stays untouched until it is done.
struct PairMessage {
  int peer = 0;
  bool outgoing = false;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;   // of the 8 bytes of its length and then of its own bytes
  std::uint64_t length = 0;  // as it stands in the ring
  bool done = false;
  std::exception_ptr error;
};

// Whoever posts or waits moves what can be moved; a thread does so meanwhile, so that a long message arrives while its
// sender computes. The thread starts with the first message.
class ShmPairs {
 public:
  explicit ShmPairs(Arena& arena);
  ~ShmPairs();
  std::shared_ptr<PairMessage> send(int peer, const std::byte* data, std::int64_t bytes);
  std::shared_ptr<PairMessage> receive(int peer, std::byte* data, std::int64_t bytes);
  // Blocks until the message has left or arrived. Throws EnvironmentError when the peer has left the group or after
  // Arena::abort(), Bug when the two ends disagree about its size. After the first error all messages fail with it.
  void wait(PairMessage& message);
  // Its memory goes away: when it is still under way, it and all messages fail, for its ring holds part of it. Nothing
  // touches the memory once this has returned.
  void drop(const PairMessage& message);
  // After Arena::abort(): fails what is under way and ends the thread.
  void stop();

 private:
  using Queue = std::deque<std::shared_ptr<PairMessage>>;
  std::shared_ptr<PairMessage> post(std::shared_ptr<PairMessage> message);
  bool advance();  // moves what can be moved now; whether anything moved
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
