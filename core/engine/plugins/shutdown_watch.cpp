#include "plugins/shutdown_watch.hpp"
#include "text/printable.hpp"

#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace strata::plugins {

namespace {

// Counted in looks, not by the clock: a process that is stopped, or that gets no processor, is given its time.
constexpr std::chrono::milliseconds between_looks{100};
constexpr int looks_to_warn = 50;
constexpr int looks_asleep = 50;
constexpr int looks_without_disk = 600;
constexpr std::int64_t computing_ns = 5'000'000;  // between two looks; the board's thread takes less

std::atomic<int> waits_for_ranks{0};

std::int64_t processor_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Bytes that this process read from and wrote to disks.
std::int64_t disk_bytes() {
  std::ifstream file("/proc/self/io");
  std::string word;
  std::int64_t sum = 0, bytes = 0;
  while (file >> word)
    if ((word == "read_bytes:" || word == "write_bytes:") && file >> bytes) sum += bytes;
  return sum;
}

// Whether a thread is in a system call that cannot be interrupted, as fsync on a slow disk is.
bool waits_for_disk() {
  std::error_code gone;
  for (std::filesystem::directory_iterator thread("/proc/self/task", gone), end; !gone && thread != end;
       thread.increment(gone)) {
    std::ifstream file(thread->path() / "stat");
    std::string text;
    std::getline(file, text);
    const std::size_t state = text.rfind(") ");  // behind the name, which may hold anything
    if (state != std::string::npos && text.substr(state + 2, 1) == "D") return true;
  }
  return false;
}

[[noreturn]] void end_process(const std::string& plugin, bool asleep) {
  const Bug error("plugin " + plugin + ": shutdown() does not return: " +
                  (asleep ? "for 5 s the process neither computed nor read or wrote a disk"
                          : "for 60 s the process read and wrote no disk") +
                  "; shutdown() must join threads and end pending work: look for a thread that is never asked to end, "
                  "or a lock that is never released");
  std::fprintf(stderr, "strata: %s\n", text::printable(error.what()).c_str());
  fflush_unlocked(nullptr);  // the thread that hangs may hold a lock
  for (;;) syscall(SYS_exit_group, error.exit_status());
}

}  // namespace

WaitForRanks::WaitForRanks() {
  ++waits_for_ranks;
}
WaitForRanks::~WaitForRanks() {
  --waits_for_ranks;
}

ShutdownWatch::ShutdownWatch() : thread_([this] { serve(); }) {}

ShutdownWatch::~ShutdownWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ShutdownWatch::watch(const std::string& plugin) {
  const std::lock_guard lock(mutex_);
  plugin_ = plugin;
  ++turn_;
}

void ShutdownWatch::serve() {
  int looks = 0, asleep = 0, without_disk = 0;
  std::uint64_t turn = 0;
  std::int64_t processor = processor_ns(), disk = disk_bytes();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, between_looks, [this] { return ends_; })) {
    if (turn != turn_) looks = asleep = without_disk = 0;
    turn = turn_;
    if (plugin_.empty()) continue;
    const std::int64_t processor_now = processor_ns(), disk_now = disk_bytes();
    const bool moves = disk_now != disk || waits_for_ranks > 0 || waits_for_disk();
    const bool computes = processor_now - processor >= computing_ns;
    processor = processor_now;
    disk = disk_now;
    without_disk = moves ? 0 : without_disk + 1;
    asleep = moves || computes ? 0 : asleep + 1;
    if (asleep == looks_asleep || without_disk == looks_without_disk) end_process(plugin_, asleep == looks_asleep);
    if (++looks == looks_to_warn)
      spdlog::warn(
          "plugin {}: shutdown() has not returned for 5 s; it may continue while it reads or writes a disk or waits "
          "for other ranks, and for up to a minute while it computes",
          plugin_);
  }
}

}  // namespace strata::plugins
