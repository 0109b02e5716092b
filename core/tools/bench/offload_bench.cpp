// Times an offload device's transfers. Floor: the simplest way to move the same bytes to the same tier.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/streams.hpp"

namespace strata::bench {

namespace {

// In huge pages where the kernel has them, as the engine's own (core/engine/memory/staging.cpp).
class AlignedMemory {
 public:
  AlignedMemory(std::size_t bytes, std::size_t alignment) {
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max<std::size_t>(alignment, huge_page), bytes) != 0)
      throw EnvironmentError("out of memory for {}", text::format_bytes(static_cast<std::int64_t>(bytes)));
    data_.reset(static_cast<std::byte*>(memory));
    madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 1, bytes);
  }
  std::byte* data() const { return data_.get(); }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// A temporary file, deleted with this object, moved past the page cache where its file system can.
class PlainFile {
 public:
  PlainFile(const std::string& folder, std::size_t bytes)
      : path_((std::filesystem::path(folder) / "strata-bench-XXXXXX").string()) {
    const std::string pattern = path_;
    handle_ = mkostemp(path_.data(), O_CLOEXEC | O_DIRECT);
    if (handle_ < 0 && errno == EINVAL) {
      path_ = pattern;
      handle_ = mkostemp(path_.data(), O_CLOEXEC);
    }
    if (handle_ < 0) fail("cannot be created");
    unlink(path_.c_str());
    if (const int error = posix_fallocate(handle_, 0, static_cast<off_t>(bytes)); error != 0) {
      errno = error;
      fail("cannot be given its space");
    }
  }
  ~PlainFile() { close(handle_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  // Each thread moves a part of the file, a block at a time.
  void write(const std::byte* from, std::size_t bytes, std::size_t threads) const {
    by_threads(bytes, threads, "written", [&](std::size_t at, std::size_t count) {
      return pwrite(handle_, from + at, count, static_cast<off_t>(at));
    });
  }
  void read(std::byte* to, std::size_t bytes, std::size_t threads) const {
    posix_fadvise(handle_, 0, 0, POSIX_FADV_DONTNEED);
    by_threads(bytes, threads, "read", [&](std::size_t at, std::size_t count) {
      return pread(handle_, to + at, count, static_cast<off_t>(at));
    });
  }

 private:
  static constexpr std::size_t block = 1 << 20;

  template <class Move>
  void by_threads(std::size_t bytes, std::size_t threads, const std::string& what, Move&& move) const {
    std::atomic<std::size_t> next{0};
    std::atomic<int> error{0};
    const auto work = [&] {
      for (std::size_t begin = next.fetch_add(block); begin < bytes && error == 0; begin = next.fetch_add(block))
        for (std::size_t at = begin, end = std::min(begin + block, bytes); at < end;) {
          const ssize_t count = move(at, end - at);
          if (count <= 0) {
            error = count < 0 ? errno : EIO;
            return;
          }
          at += static_cast<std::size_t>(count);
        }
    };
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    if (error == 0) return;
    errno = error;
    fail("cannot be " + what);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw EnvironmentError("the bench's file {} {}: {}", path_, what, std::strerror(errno));
  }
  std::string path_;
  int handle_ = -1;
};

// One transfer, split into as many parts as the device accepts at a time, at most 8.
struct Parts {
  OffloadDevice& device;
  Region region;
  std::byte* memory;
  std::size_t step;

  template <class Start>
  void run(Start&& start) const {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (std::size_t at = 0; at < region.bytes; at += step)
      transfers.push_back(start(at, Span{memory + at, std::min(step, region.bytes - at)}));
    for (const auto& transfer : transfers) transfer->wait();
  }
  void write() const {
    run([this](std::size_t at, Span span) { return device.write(region, at, span); });
  }
  void read() const {
    run([this](std::size_t at, Span span) { return device.read(region, at, span); });
  }
};

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::vector<Row> bench_offload(OffloadDevice& device, const std::string& folder, const Sizes& sizes,
                               const InterleavedTimer& timer) {
  std::vector<Row> rows;
  const OffloadLimits limits = device.limits();
  const std::size_t unit = std::max<std::size_t>(limits.alignment, 1);
  const std::size_t count = static_cast<std::size_t>(std::clamp(limits.transfers_in_flight, 1, 8));
  for (const std::int64_t size : sizes) {
    const std::size_t bytes = rounded_up(static_cast<std::size_t>(size), unit);
    const Region region = device.reserve(bytes);
    const AlignedMemory memory(bytes, unit);
    const Streams copy = Streams::of_copy(static_cast<std::int64_t>(bytes));
    const Parts parts{device, region, memory.data(), rounded_up((bytes + count - 1) / count, unit)};
    std::optional<PlainFile> file;
    std::optional<AlignedMemory> other;
    if (device.tier() == Tier::Disk) {
      file.emplace(folder, bytes);
      other.emplace(bytes, unit);
    }
    const auto measure = [&](const std::string& name, const std::string& floor, const Work& plugin,
                             const std::vector<Work>& plain) {
      rows.push_back(timer.time({.name = name,
                                 .size = text::format_bytes(static_cast<std::int64_t>(bytes)),
                                 .floor = floor,
                                 .work = static_cast<double>(bytes),
                                 .work_unit = "B"},
                                plugin, plain));
    };
    const std::size_t depth = std::clamp<std::size_t>(static_cast<std::size_t>(limits.transfers_in_flight), 1, 32);
    const auto plain = [&](const std::function<void(std::size_t threads)>& of_file) {
      if (!file) return copy.passes();
      return std::vector<Work>{[of_file] { of_file(1); }, [of_file] { of_file(4); },
                               [of_file, depth] { of_file(depth); }};
    };
    const std::string floor =
        file ? "direct I/O of blocks of 1 MiB by 1, 4 or " + std::to_string(depth) + " threads" : copy.name();
    measure(
        "write", floor, [&] { parts.write(); },
        plain([&](std::size_t threads) { file->write(other->data(), bytes, threads); }));
    measure(
        "read", floor, [&] { parts.read(); },
        plain([&](std::size_t threads) { file->read(other->data(), bytes, threads); }));
    if (const std::optional<Span> mapped = device.map(region))
      measure(
          "write in place", copy.name(), [&] { std::memcpy(mapped->data, memory.data(), bytes); }, copy.passes());
    device.free(region);
  }
  return rows;
}

}  // namespace strata::bench
