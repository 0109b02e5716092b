// Times an offload device's transfers. Floor: the simplest way to move the same bytes to the same tier.
#include <fcntl.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bench/kinds.hpp"
#include "bench/streams.hpp"
#include "text/size.hpp"

namespace strata::bench {

namespace {

class AlignedMemory {
 public:
  AlignedMemory(std::size_t bytes, std::size_t alignment) {
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max<std::size_t>(alignment, 64), bytes) != 0)
      throw EnvironmentError("out of memory for " + config::format_bytes(static_cast<std::int64_t>(bytes)));
    data_.reset(static_cast<std::byte*>(memory));
    std::memset(memory, 1, bytes);
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// A temporary file, deleted with this object.
class PlainFile {
 public:
  explicit PlainFile(const std::string& folder)
      : path_((std::filesystem::path(folder) / "strata-bench-XXXXXX").string()) {
    handle_ = mkostemp(path_.data(), O_CLOEXEC);
    if (handle_ < 0) fail("cannot be created");
    unlink(path_.c_str());
  }
  ~PlainFile() { close(handle_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;
  void write(const std::byte* from, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = pwrite(handle_, from + done, bytes - done, static_cast<off_t>(done));
      if (count < 0) fail("cannot be written");
      done += static_cast<std::size_t>(count);
    }
    if (fdatasync(handle_) != 0) fail("cannot be written");
  }
  // Reads from the disk, not from the page cache.
  void read(std::byte* to, std::size_t bytes) const {
    posix_fadvise(handle_, 0, 0, POSIX_FADV_DONTNEED);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = pread(handle_, to + done, bytes - done, static_cast<off_t>(done));
      if (count <= 0) fail("cannot be read");
      done += static_cast<std::size_t>(count);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw EnvironmentError("the bench's file " + path_ + " " + what + ": " + std::strerror(errno));
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
      file.emplace(folder);
      other.emplace(bytes, unit);
    }
    const auto measure = [&](const std::string& name, const std::string& floor, const Work& plugin,
                             const std::vector<Work>& plain) {
      rows.push_back(timer.time({.name = name,
                                 .size = config::format_bytes(static_cast<std::int64_t>(bytes)),
                                 .floor = floor,
                                 .work = static_cast<double>(bytes),
                                 .work_unit = "B"},
                                plugin, plain));
    };
    const auto plain = [&](Work of_file) { return file ? std::vector<Work>{std::move(of_file)} : copy.passes(); };
    measure(
        "write", file ? "pwrite and fdatasync" : copy.name(), [&] { parts.write(); },
        plain([&] { file->write(other->data(), bytes); }));
    measure(
        "read", file ? "pread of a file not in memory" : copy.name(), [&] { parts.read(); },
        plain([&] { file->read(other->data(), bytes); }));
    if (const std::optional<Span> mapped = device.map(region))
      measure(
          "write in place", copy.name(), [&] { std::memcpy(mapped->data, memory.data(), bytes); }, copy.passes());
    device.free(region);
  }
  return rows;
}

}  // namespace strata::bench
