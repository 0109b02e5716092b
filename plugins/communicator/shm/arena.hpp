// The memory that the ranks of a group share, and how they wait for each other in it.
#pragma once
#include <strata/communicator.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace strata::shm_communicator {

inline constexpr std::size_t cache_line = 128;  // two lines: processors fetch them in pairs
inline constexpr std::uint64_t depth = 2;       // rounds that a rank may be ahead of its slowest reader
inline constexpr std::int64_t part_alignment =
    64;  // bytes: what a reduction writes for one other rank begins on a line

// What a rank does in a round; ranks that do different things have called different collectives.
struct Announcement {
  std::uint32_t operation = 0;
  std::uint32_t root = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Announcement&) const = default;
};

// One rank's notices to the others. Counters only grow.
struct Board {
  alignas(cache_line) std::atomic<std::uint64_t> published{0};  // rounds that it has written into its slots
  std::array<Announcement, depth> announcements{};              // of round n: [n % depth]
  alignas(cache_line) std::atomic<std::uint64_t> consumed{0};   // rounds that it has finished reading
  alignas(cache_line) std::atomic<std::uint32_t> bell{0};       // grows when anything it may wait for has changed
  std::atomic<std::uint32_t> sleeping{0};                       // its threads that wait for the bell
  std::atomic<std::uint32_t> left{0};                           // 1: it has shut down
};

// A stream of bytes from one rank to one other.
struct Ring {
  alignas(cache_line) std::atomic<std::uint64_t> written{0};
  alignas(cache_line) std::atomic<std::uint64_t> read{0};
};

// [Note: Shared memory without a name] The segment is a memfd of group rank 0, which the others open through
// /proc/PID/fd. It has no name that could outlive a killed run, and /dev/shm's size does not bound it. Pages are taken
// when they are first written, so the rings of pairs that never talk cost nothing.
// Where it is stands in the run's store, which others may write: what is found there is mapped only when it is a memfd
// of this user, of the size that this group needs, and sealed against changing it.
//
// [Note: Waiting] A waiter looks for some microseconds, then sleeps on its own bell. Whoever changes something that a
// peer may wait for rings that peer's bell, and calls the kernel only if somebody sleeps there: the waiter counts
// itself as sleeping before it looks for the last time, the ringer rings before it looks for sleepers.
class Arena {
 public:
  // `slot_bytes` is raised to a line for each other rank. [collective] Blocks until all ranks have the segment. Throws
  // EnvironmentError when one does not come within the setup's timeout, UserError when ranks are on several hosts or in
  // several containers.
  Arena(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t slot_bytes,
        std::int64_t ring_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }
  std::int64_t ring_bytes() const { return ring_bytes_; }
  Board& board(int rank) { return *reinterpret_cast<Board*>(memory_ + static_cast<std::size_t>(rank) * sizeof(Board)); }
  std::byte* slot(int rank, std::uint64_t round);
  Ring& ring(int from, int to);
  std::byte* ring_data(int from, int to);

  void ring_bell(int rank);
  void ring_all_bells();
  // Blocks until missing(), the peer that is waited for, gives `nobody`. Throws EnvironmentError naming that peer when
  // it has left the group, and after abort().
  static constexpr int nobody = -1;
  template <typename Missing>
  void wait(Missing&& missing) {
    for (int look = 0; look < looks_before_sleep; ++look) {
      if (missing() == nobody) return;
      pause();
    }
    wait_asleep(std::function<int()>(std::forward<Missing>(missing)));
  }
  // Why a wait for `peer` ends: abort(), or it has left.
  [[noreturn]] void give_up(int peer) const;
  // Sleeps until this rank's bell has another value than `seen`, or about 100 ms.
  void sleep(std::uint32_t seen);
  std::uint32_t bell() { return board(rank_).bell.load(); }

  // Ends all waits of this rank and tells the others that it is gone. Any thread may call it.
  void abort();
  bool aborted() const { return aborted_.load(); }

 private:
  static constexpr int looks_before_sleep = 2000;
  static void pause();
  void wait_asleep(const std::function<int()>& missing);
  void map(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup);
  std::size_t total_bytes() const;
  std::size_t slots_begin() const;
  std::size_t rings_begin() const;
  std::size_t ring_stride() const;

  int rank_;
  int size_;
  std::int64_t slot_bytes_;
  std::int64_t ring_bytes_;
  std::byte* memory_ = nullptr;
  std::atomic<bool> aborted_{false};
};

// Opens the segment that the store names, checked as the note above says; the caller closes it. Throws
// EnvironmentError.
int open_segment(const std::string& path, std::size_t bytes);

// Why this process cannot share memory in the way of the note above; empty when it can.
std::string missing_here();

}  // namespace strata::shm_communicator
