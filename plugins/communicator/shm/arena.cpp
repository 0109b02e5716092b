#include "arena.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace strata::shm_communicator {

namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in memory shared by processes must be lock-free");

constexpr std::chrono::milliseconds longest_sleep{100};

std::size_t round_up(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return (bytes + page - 1) / page * page;
}

std::string seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

// Equal on two processes that can see each other under /proc: one boot of one kernel, one namespace of processes.
std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat space {};
  if (boot.empty() || stat("/proc/self/ns/pid", &space) != 0)
    throw EnvironmentError(
        "/proc is not mounted, and this communicator shares memory through it; mount it, or use another communicator");
  return format("{} {}", boot, space.st_ino);
}

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int make_segment(std::size_t bytes) {
  const int handle = memfd_create("strata", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (handle < 0 || ftruncate(handle, static_cast<off_t>(bytes)) != 0 || fcntl(handle, F_ADD_SEALS, size_seals) != 0)
    throw EnvironmentError("cannot create {} bytes of shared memory: {}", bytes, std::strerror(errno));
  return handle;
}

std::string path_of_segment(int handle) {
  return format("/proc/{}/fd/{}", getpid(), handle);
}

// Whether `text` has the form of path_of_segment(): to open any other path may do something already.
bool names_a_descriptor(const std::string& text) {
  int read = 0;
  return std::sscanf(text.c_str(), "/proc/%*9[0-9]/fd/%*9[0-9]%n", &read) == 0 && read > 0 &&
         static_cast<std::size_t>(read) == text.size();
}

std::string get(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key) {
  const std::vector<std::uint8_t> value = store->get(key);
  return {value.begin(), value.end()};
}

void set(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key, const std::string& value) {
  store->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

}  // namespace

int open_segment(const std::string& path, std::size_t bytes) {
  const auto refuse = [&](const std::string& found) {
    throw EnvironmentError(
        "the run's store gives '{}' as the group's shared memory, but it {}; check that nothing else writes into the "
        "store",
        path, found);
  };
  if (!names_a_descriptor(path)) refuse("is not a file descriptor of a process");
  const int handle = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (handle < 0)
    throw EnvironmentError("cannot open the group's shared memory, {}: {}; all ranks must run as the same user", path,
                           std::strerror(errno));
  struct stat found {};
  std::string difference;
  const int seals = fcntl(handle, F_GET_SEALS);  // -1 where a file cannot have any
  if (fstat(handle, &found) != 0 || seals < 0 || (seals & size_seals) != size_seals)
    difference = "is not a memory file whose size is sealed";
  else if (found.st_uid != geteuid())
    difference = "belongs to another user";
  else if (static_cast<std::size_t>(found.st_size) != bytes)
    difference = format("has {} bytes where the group needs {}", found.st_size, bytes);
  if (difference.empty()) return handle;
  close(handle);
  refuse(difference);
  return -1;
}

std::string missing_here() {
  try {
    host_identity();
    const int handle = make_segment(1);
    const std::string path = path_of_segment(handle);
    const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const int problem = errno;
    close(handle);
    if (again < 0) return "it cannot open " + path + ": " + std::strerror(problem);
    close(again);
    return "";
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

Arena::Arena(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup, std::int64_t slot_bytes,
             std::int64_t ring_bytes)
    : rank_(setup.rank),
      size_(setup.size),
      slot_bytes_(std::max(slot_bytes, (size_ - 1) * part_alignment)),
      ring_bytes_(ring_bytes) {
  const std::string where = format("group {}: rank {} of {}", setup.name, rank_, size_);
  try {
    map(store, setup);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw EnvironmentError("{} could not connect through shared memory within {}: {}", where, seconds(setup.timeout),
                           text.substr(0, text.find('\n')));
  }
}

void Arena::map(const c10::intrusive_ptr<c10d::Store>& store, const GroupSetup& setup) {
  const std::string identity = host_identity();
  int handle = -1;
  if (rank_ == 0) {
    handle = make_segment(total_bytes());
    set(store, "shm host", identity);
    set(store, "shm segment", path_of_segment(handle));
  } else {
    if (get(store, "shm host") != identity)
      throw UserError(
          "group {}: rank {} and rank 0 are on different hosts or in different containers, which share no memory; use "
          "communicator.plugin=gloo or another that connects hosts",
          setup.name, rank_);
    handle = open_segment(get(store, "shm segment"), total_bytes());
  }
  void* memory = mmap(nullptr, total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
  const int problem = errno;
  if (rank_ != 0) close(handle);
  if (memory == MAP_FAILED) throw EnvironmentError("cannot map the group's shared memory: {}", std::strerror(problem));
  memory_ = static_cast<std::byte*>(memory);
  // The segment is zeros, the first value of every counter. Rank 0 keeps it open until all have it.
  set(store, "shm mapped " + std::to_string(rank_), "1");
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(format("shm mapped {}", rank));
  store->wait(keys, setup.timeout);
  if (rank_ == 0) close(handle);
}

Arena::~Arena() {
  if (memory_ != nullptr) munmap(memory_, total_bytes());
}

std::size_t Arena::slots_begin() const {
  return round_up(static_cast<std::size_t>(size_) * sizeof(Board));
}
std::size_t Arena::rings_begin() const {
  return slots_begin() + static_cast<std::size_t>(size_) * depth * round_up(static_cast<std::size_t>(slot_bytes_));
}
std::size_t Arena::ring_stride() const {
  return round_up(sizeof(Ring)) + round_up(static_cast<std::size_t>(ring_bytes_));
}
std::size_t Arena::total_bytes() const {
  return rings_begin() + static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_) * ring_stride();
}

std::byte* Arena::slot(int rank, std::uint64_t round) {
  const std::size_t index = static_cast<std::size_t>(rank) * depth + round % depth;
  return memory_ + slots_begin() + index * round_up(static_cast<std::size_t>(slot_bytes_));
}

Ring& Arena::ring(int from, int to) {
  const std::size_t index =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to);
  return *reinterpret_cast<Ring*>(memory_ + rings_begin() + index * ring_stride());
}

std::byte* Arena::ring_data(int from, int to) {
  return reinterpret_cast<std::byte*>(&ring(from, to)) + round_up(sizeof(Ring));
}

void Arena::ring_bell(int rank) {
  Board& peer = board(rank);
  peer.bell.fetch_add(1);
  if (peer.sleeping.load() == 0) return;
  syscall(SYS_futex, &peer.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Arena::ring_all_bells() {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) ring_bell(rank);
}

void Arena::sleep(std::uint32_t seen) {
  const timespec limit{0, std::chrono::nanoseconds(longest_sleep).count()};
  syscall(SYS_futex, &board(rank_).bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void Arena::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void Arena::give_up(int peer) const {
  throw EnvironmentError(aborted() ? "the group is shut down" : "rank " + std::to_string(peer) + " has left the group");
}

void Arena::wait_asleep(const std::function<int()>& missing) {
  Board& mine = board(rank_);
  mine.sleeping.fetch_add(1);
  while (true) {
    const std::uint32_t seen = mine.bell.load();
    const int peer = missing();
    const bool gone = peer != nobody && board(peer).left.load() != 0;
    if (gone && missing() != peer) continue;  // it did its part before it left
    if (peer != nobody && !gone && !aborted()) {
      sleep(seen);
      continue;
    }
    mine.sleeping.fetch_sub(1);
    if (peer == nobody) return;
    give_up(peer);
  }
}

void Arena::abort() {
  aborted_.store(true);
  board(rank_).left.store(1);
  ring_all_bells();
  ring_bell(rank_);
}

}  // namespace strata::shm_communicator
