// The memory that the ranks of a group share, and how they wait for each other.
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

inline constexpr std::size_t cache_line = 128;      // two lines, because CPUs fetch them in pairs
inline constexpr std::uint64_t depth = 2;           // rounds that a rank may be ahead of its slowest reader
inline constexpr std::int64_t part_alignment = 64;  // bytes: a reduction's data for another rank starts on a cache line

// The call of a rank in a round; if calls differ, ranks have called different collectives.
struct Announcement {
  std::uint32_t operation = 0;
  std::uint32_t root = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Announcement&) const = default;
};

// One rank's notices to the others. Counters never decrease.
struct Board {
  alignas(cache_line) std::atomic<std::uint64_t> published{0};  // rounds written into its slots
  std::array<Announcement, depth> announcements{};              // of round n: [n % depth]
  alignas(cache_line) std::atomic<std::uint64_t> consumed{0};   // rounds that it has finished reading
  alignas(cache_line) std::atomic<std::uint32_t> bell{0};       // grows when anything it may wait for has changed
  std::atomic<std::uint32_t> sleeping{0};                       // its threads that wait for the bell
  std::atomic<std::uint32_t> left{0};                           // 1: it has shut down
};

// A stream of bytes from one rank to another.
struct Ring {
  alignas(cache_line) std::atomic<std::uint64_t> written{0};
  alignas(cache_line) std::atomic<std::uint64_t> read{0};
};

// [Note: Shared memory without a name] The segment is a memfd of group rank 0, which the others open through
// /proc/PID/fd. It has no name that could outlive a killed run, and the size of /dev/shm does not limit it. Pages are
// allocated on first write, so the rings of pairs that never communicate cost nothing. The path is published in the
// run's store, which other processes may write to; it is therefore mapped only if it is a memfd of this user with the
// size that the group needs and a sealed size.
//
// [Note: Waiting] A waiting rank polls for some microseconds, then sleeps on its own bell. A rank that changes
// something a peer may wait for rings the peer's bell, and calls the kernel only if somebody sleeps there. No wake-up
// is lost: the waiter registers as sleeping before its last check, and the ringer rings before it checks for sleepers.
class Arena {
 public:
  // `slot_bytes` is raised to one line per other rank. [collective] Blocks until all ranks have opened the segment.
  // Throws EnvironmentError if one does not within the setup's timeout, UserError if ranks are on several hosts or in
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
  // Blocks until missing() returns `nobody` instead of a peer to wait for. Throws EnvironmentError if that peer has
  // left the group, and after abort().
  static constexpr int nobody = -1;
  template <typename Missing>
  void wait(Missing&& missing) {
    for (int look = 0; look < looks_before_sleep; ++look) {
      if (missing() == nobody) return;
      pause();
    }
    wait_asleep(std::function<int()>(std::forward<Missing>(missing)));
  }
  // Throws the reason why a wait for `peer` ends: abort(), or the peer has left.
  [[noreturn]] void give_up(int peer) const;
  // Sleeps until this rank's bell differs from `seen`, at most about 100 ms.
  void sleep(std::uint32_t seen);
  std::uint32_t bell() { return board(rank_).bell.load(); }

  // Ends all waits of this rank and marks it as gone for the others. Any thread may call it.
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

// Opens the segment at the path from the store, with the checks of the note above; the caller closes it. Throws
// EnvironmentError.
int open_segment(const std::string& path, std::size_t bytes);

// The reason why this process cannot share memory this way; empty if it can.
std::string missing_here();

}  // namespace strata::shm_communicator
