// Direct transfers of an io_uring whose memory is registered (io_uring_register_buffers) beside such whose is not: how
// fast, and what processor time. Usage: registered_buffers FOLDER MIB ROUNDS
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t block = 1 << 20, huge_page = 2 << 20;
constexpr std::array<unsigned, 5> depths{8, 16, 32, 64, 128};

struct Cost {
  double seconds = 0.0, processor = 0.0;
};

Cost now() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          seconds(used.ru_utime) + seconds(used.ru_stime)};
}

void require(bool holds, const std::string& what, int error = errno) {
  if (!holds) throw std::runtime_error(what + ": " + std::strerror(error));
}

// All of the memory, block by block.
Cost move(io_uring& ring, unsigned depth, int file, std::byte* memory, std::size_t bytes, bool writes,
          bool registered) {
  const Cost begin = now();
  std::size_t at = 0;
  for (unsigned under_way = 0; at < bytes || under_way > 0;) {
    for (; at < bytes && under_way < depth; at += block, ++under_way) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring);
      if (registered)
        writes ? io_uring_prep_write_fixed(entry, file, memory + at, block, at, 0)
               : io_uring_prep_read_fixed(entry, file, memory + at, block, at, 0);
      else
        writes ? io_uring_prep_write(entry, file, memory + at, block, at)
               : io_uring_prep_read(entry, file, memory + at, block, at);
    }
    io_uring_submit_and_wait(&ring, 1);
    for (io_uring_cqe* ended = nullptr; io_uring_peek_cqe(&ring, &ended) == 0; --under_way) {
      require(ended->res == static_cast<int>(block), "a transfer", -ended->res);
      io_uring_cqe_seen(&ring, ended);
    }
  }
  const Cost end = now();
  return {end.seconds - begin.seconds, end.processor - begin.processor};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void measure(const char* folder, std::size_t bytes, int rounds, bool huge) {
  const int file = open(folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  require(file >= 0 && posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0, folder);
  void* const mapped = mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(mapped != MAP_FAILED, "mmap");
  auto* const memory =
      static_cast<std::byte*>(mapped) + (huge_page - reinterpret_cast<std::uintptr_t>(mapped) % huge_page);
  madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(memory, 1, bytes);
  for (const unsigned depth : depths) {
    std::array<std::vector<double>, 2> faster, with_registered;  // by whether it writes
    std::array<std::vector<double>, 2> seconds, processor;
    for (int round = 0; round < rounds; ++round) {
      std::array<std::array<Cost, 2>, 2> costs{};  // by whether it is registered, and writes
      for (const bool registered : {false, true}) {
        io_uring ring{};
        require(io_uring_queue_init(2 * depth, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) == 0,
                "io_uring");
        const iovec all{memory, bytes};
        if (registered) {
          const int status = io_uring_register_buffers(&ring, &all, 1);
          require(status == 0, "io_uring_register_buffers", -status);
        }
        for (const bool writes : {true, false})
          costs[registered][writes] = move(ring, depth, file, memory, bytes, writes, registered);
        io_uring_queue_exit(&ring);
      }
      for (const bool writes : {true, false}) {
        seconds[writes].push_back(costs[0][writes].seconds);
        processor[writes].push_back(costs[0][writes].processor);
        faster[writes].push_back(costs[0][writes].seconds / costs[1][writes].seconds);
        with_registered[writes].push_back(costs[1][writes].processor);
      }
    }
    const double gigabytes = 1e-9 * static_cast<double>(bytes);
    for (const bool writes : {true, false})
      std::printf("| %s | %u | %s | %.2f | %.1f | **%.3f** | %.3f .. %.3f | %.1f |\n", huge ? "2 MiB" : "4 KiB", depth,
                  writes ? "write" : "read", gigabytes / median(seconds[writes]),
                  1e3 * median(processor[writes]) / gigabytes, median(faster[writes]),
                  *std::ranges::min_element(faster[writes]), *std::ranges::max_element(faster[writes]),
                  1e3 * median(with_registered[writes]) / gigabytes);
  }
  munmap(mapped, bytes + huge_page);
  close(file);
}

}  // namespace

int main(int count, char** words) try {
  if (count != 4) throw std::invalid_argument("usage: registered_buffers FOLDER MIB ROUNDS");
  std::puts(
      "| pages | depth | | GB/s | processor ms / GB | rate, registered over not | least .. most | processor ms / GB, "
      "registered |\n|---|---|---|---|---|---|---|---|");
  for (const bool huge : {true, false}) measure(words[1], std::stoull(words[2]) << 20, std::stoi(words[3]), huge);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "registered_buffers: %s\n", error.what());
  return 1;
}
