#include "shm_pairs.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstring>

namespace strata::shm_communicator {

namespace {
constexpr std::uint64_t length_bytes = sizeof(std::uint64_t);

// Copies into or out of a ring of `capacity` bytes at stream position `at`, which may wrap once.
void into_ring(std::byte* ring, std::uint64_t capacity, std::uint64_t at, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t place = at % capacity;
  const std::uint64_t first = std::min(bytes, capacity - place);
  std::memcpy(ring + place, from, first);
  std::memcpy(ring, from + first, bytes - first);
}
void out_of_ring(std::byte* to, const std::byte* ring, std::uint64_t capacity, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t place = at % capacity;
  const std::uint64_t first = std::min(bytes, capacity - place);
  std::memcpy(to, ring + place, first);
  std::memcpy(to + first, ring, bytes - first);
}
}  // namespace

ShmPairs::ShmPairs(Arena& arena)
    : arena_(arena),
      outgoing_(static_cast<std::size_t>(arena.size())),
      incoming_(static_cast<std::size_t>(arena.size())) {}

ShmPairs::~ShmPairs() {
  stop();
}

std::shared_ptr<PairMessage> ShmPairs::send(int peer, const std::byte* data, std::int64_t bytes) {
  auto message = std::make_shared<PairMessage>();
  message->outgoing = true;
  message->data = const_cast<std::byte*>(data);  // only read
  message->length = static_cast<std::uint64_t>(bytes);
  message->peer = peer;
  message->bytes = static_cast<std::uint64_t>(bytes);
  return post(std::move(message));
}

std::shared_ptr<PairMessage> ShmPairs::receive(int peer, std::byte* data, std::int64_t bytes) {
  auto message = std::make_shared<PairMessage>();
  message->data = data;
  message->peer = peer;
  message->bytes = static_cast<std::uint64_t>(bytes);
  return post(std::move(message));
}

std::shared_ptr<PairMessage> ShmPairs::post(std::shared_ptr<PairMessage> message) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw EnvironmentError("the group is shut down");
  (message->outgoing ? outgoing_ : incoming_)[static_cast<std::size_t>(message->peer)].push_back(message);
  advance();
  if (!message->done && !thread_.joinable()) thread_ = std::thread([this] { serve(); });
  if (!message->done) posted_.notify_one();
  return message;
}

bool ShmPairs::push(PairMessage& message) {
  Ring& ring = arena_.ring(arena_.rank(), message.peer);
  const auto capacity = static_cast<std::uint64_t>(arena_.ring_bytes());
  const std::uint64_t written = ring.written.load(std::memory_order_relaxed);
  std::uint64_t room = capacity - (written - ring.read.load(std::memory_order_acquire));
  std::uint64_t at = written;
  if (message.moved == 0) {
    if (room < length_bytes) return false;
    into_ring(arena_.ring_data(arena_.rank(), message.peer), capacity, at,
              reinterpret_cast<const std::byte*>(&message.length), length_bytes);
    at += length_bytes;
    room -= length_bytes;
    message.moved = length_bytes;
  }
  const std::uint64_t sent = message.moved - length_bytes;
  const std::uint64_t bytes = std::min(room, message.bytes - sent);
  into_ring(arena_.ring_data(arena_.rank(), message.peer), capacity, at, message.data + sent, bytes);
  message.moved += bytes;
  ring.written.store(at + bytes, std::memory_order_release);
  return at + bytes != written;
}

bool ShmPairs::pull(PairMessage& message) {
  Ring& ring = arena_.ring(message.peer, arena_.rank());
  const auto capacity = static_cast<std::uint64_t>(arena_.ring_bytes());
  const std::uint64_t read = ring.read.load(std::memory_order_relaxed);
  std::uint64_t there = ring.written.load(std::memory_order_acquire) - read;
  std::uint64_t at = read;
  const std::byte* data = arena_.ring_data(message.peer, arena_.rank());
  if (message.moved == 0) {
    if (there < length_bytes) return false;
    out_of_ring(reinterpret_cast<std::byte*>(&message.length), data, capacity, at, length_bytes);
    at += length_bytes;
    there -= length_bytes;
    message.moved = length_bytes;
    if (message.length != message.bytes)
      throw Bug("rank {} of the group sends {} bytes where rank {} receives {}", message.peer, message.length,
                arena_.rank(), message.bytes);
  }
  const std::uint64_t taken = message.moved - length_bytes;
  const std::uint64_t bytes = std::min(there, message.bytes - taken);
  out_of_ring(message.data + taken, data, capacity, at, bytes);
  message.moved += bytes;
  ring.read.store(at + bytes, std::memory_order_release);
  return at + bytes != read;
}

bool ShmPairs::advance(PairMessage& message) {
  const bool gone = arena_.board(message.peer).left.load() != 0;  // before looking: it may leave after its part
  const bool moved = message.outgoing ? push(message) : pull(message);
  message.done = message.moved == length_bytes + message.bytes;
  if (moved) {
    arena_.ring_bell(message.peer);
  } else if (!message.done && (gone || arena_.aborted())) {
    arena_.give_up(message.peer);
  }
  return moved;
}

bool ShmPairs::advance() {
  bool moved = false;
  try {
    if (error_ != nullptr) std::rethrow_exception(error_);
    for (std::vector<Queue>* queues : {&outgoing_, &incoming_})
      for (Queue& queue : *queues)
        while (!queue.empty()) {
          moved = advance(*queue.front()) || moved;
          if (!queue.front()->done) break;
          queue.pop_front();
        }
  } catch (...) {
    fail_all(std::current_exception());
  }
  return moved;
}

void ShmPairs::fail_all(const std::exception_ptr& error) {
  error_ = error;
  for (std::vector<Queue>* queues : {&outgoing_, &incoming_})
    for (Queue& queue : *queues) {
      for (const std::shared_ptr<PairMessage>& message : queue) message->error = error;
      queue.clear();
    }
}

bool ShmPairs::idle() const {
  const auto empty = [](const Queue& queue) { return queue.empty(); };
  return std::all_of(outgoing_.begin(), outgoing_.end(), empty) &&
         std::all_of(incoming_.begin(), incoming_.end(), empty);
}

void ShmPairs::wait(PairMessage& message) {
  Board& mine = arena_.board(arena_.rank());
  mine.sleeping.fetch_add(1);
  while (true) {
    const std::uint32_t seen = arena_.bell();
    {
      const std::lock_guard lock(mutex_);
      if (!message.done && message.error == nullptr) advance();
      if (message.done || message.error != nullptr) break;
    }
    arena_.sleep(seen);
  }
  mine.sleeping.fetch_sub(1);
  if (message.error != nullptr) std::rethrow_exception(message.error);
}

void ShmPairs::drop(const PairMessage& message) {
  const std::lock_guard lock(mutex_);
  if (!message.done && message.error == nullptr)
    fail_all(std::make_exception_ptr(
        EnvironmentError("a message to or from rank {} of the group was dropped before it had ended", message.peer)));
}

void ShmPairs::serve() {
  Board& mine = arena_.board(arena_.rank());
  while (true) {
    std::uint32_t seen = 0;
    {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [this] { return stopping_ || !idle(); });
      if (stopping_) return;
      mine.sleeping.fetch_add(1);
      seen = arena_.bell();
      if (advance()) arena_.ring_bell(arena_.rank());  // another thread may wait for what has moved
    }
    if (seen == arena_.bell()) arena_.sleep(seen);
    mine.sleeping.fetch_sub(1);
  }
}

void ShmPairs::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) fail_all(std::make_exception_ptr(EnvironmentError("the group is shut down")));
    stopping_ = true;
  }
  posted_.notify_all();
  arena_.ring_bell(arena_.rank());
  if (thread_.joinable()) thread_.join();
}

}  // namespace strata::shm_communicator
