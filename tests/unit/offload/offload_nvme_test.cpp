// The offload device on disks: striping, both ways to the disk, and files that something alters.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/offload_device.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "blocks.hpp"
#include "catch.hpp"
#include "temporary_folder.hpp"

using namespace strata;

namespace {

using Nvme = fakes::LoadedPlugin<OffloadDevice>;

Nvme nvme(const fakes::OptionTexts& options) {
  return Nvme(fakes::PluginLibrary(OFFLOAD_NVME_LIBRARY), options);
}

// Memory as O_DIRECT wants it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), data_(std::aligned_alloc(4096, bytes)) {
    std::memset(data_, 0, bytes);
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Span span() const { return {data_, bytes_}; }
  Span from(std::size_t at, std::size_t bytes) const { return {static_cast<std::byte*>(data_) + at, bytes}; }
  void randomize(unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < bytes_ / sizeof(unsigned); ++i) static_cast<unsigned*>(data_)[i] = random();
  }
  bool operator==(const Memory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data_, other.data_, bytes_) == 0;
  }

 private:
  std::size_t bytes_;
  void* data_;
};

// The device's nameless files, among this process's descriptors.
std::vector<int> files_in(const std::filesystem::path& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with(folder.string())) found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

const std::array<const char*, 2> interfaces{"io_uring", "threads"};

}  // namespace

TEST_CASE("ranges come back as they were written, striped over any number of folders") {
  const std::string interface = GENERATE_COPY(from_range(interfaces));
  const int folders = GENERATE(1, 2, 3);
  const bool checksums = GENERATE(false, true);
  const TemporaryFolder temporary;
  std::string path;
  for (int i = 0; i < folders; ++i) {
    const std::string folder = temporary / std::to_string(i);
    std::filesystem::create_directory(folder);
    path += (i > 0 ? ":" : "") + folder;
  }
  const Nvme device = nvme({{"path", path},
                            {"interface", interface},
                            {"block_size", "8KiB"},
                            {"queue_depth", "3"},
                            {"checksums", checksums ? "true" : "false"}});
  const std::size_t bytes = 4096 * 77;
  const Region first = device->reserve(bytes - 5), second = device->reserve(4096), third = device->reserve(bytes);
  Memory a(bytes), b(4096), found(bytes), small(4096);
  a.randomize(1);
  b.randomize(2);
  const auto whole = a.from(0, bytes - 4096);
  const auto of_first = device->write(first, 0, whole), of_second = device->write(second, 0, b.span()),
             of_third = device->write(third, 0, a.span());
  of_third->wait();
  of_second->wait();
  of_first->wait();
  device->read(third, 0, found.span())->wait();
  CHECK(found == a);
  device->read(second, 0, small.span())->wait();
  CHECK(small == b);
  // A range across blocks, over what was there.
  b.randomize(3);
  device->write(third, 4096 * 5, b.span())->wait();
  std::memcpy(a.from(4096 * 5, 4096).data, b.span().data, 4096);
  device->read(third, 0, found.span())->wait();
  CHECK(found == a);
  for (int i = 0; i < folders; ++i) CHECK(std::filesystem::is_empty(temporary / std::to_string(i)));
}

TEST_CASE("files changed by another program are an error that names the place") {
  const std::string interface = GENERATE_COPY(from_range(interfaces));
  const TemporaryFolder temporary;
  const Nvme device = nvme({{"path", temporary.path().string()}, {"interface", interface}, {"checksums", "true"}});
  const Region region = device->reserve(1 << 20);
  Memory memory(1 << 20);
  memory.randomize(4);
  device->write(region, 0, memory.span())->wait();
  const std::vector<int> files = files_in(temporary.path());
  REQUIRE(files.size() == 1);
  const int other = open(("/proc/self/fd/" + std::to_string(files.front())).c_str(), O_RDWR);
  REQUIRE(other >= 0);
  const char byte = 7;
  REQUIRE(pwrite(other, &byte, 1, 300'000) == 1);
  REQUIRE(fsync(other) == 0);
  const auto read = [&] { device->read(region, 0, memory.span())->wait(); };
  CHECK_THROWS_MATCHES(read(), EnvironmentError, Catch::Predicate<EnvironmentError>([&](const EnvironmentError& error) {
                         const std::string text = error.what();
                         return text.find(temporary.path().string()) != std::string::npos &&
                                text.find("checksum") != std::string::npos && text.find("299008") != std::string::npos;
                       }));
  REQUIRE(ftruncate(other, 500'000) == 0);
  CHECK_THROWS_WITH(read(), Catch::Contains("it was truncated"));
  close(other);
}

TEST_CASE("a block moved in part is continued at the next aligned place") {
  const Memory memory(4 * 4096);
  const auto progress = std::make_shared<offload_nvme::Progress>();
  const auto transfer = std::make_shared<offload_nvme::TransferState>(1, progress, std::chrono::seconds(60));
  const offload_nvme::File file{-1, "folder"};
  offload_nvme::Block block(transfer, file, 8192, memory.span(), /*writes=*/true, nullptr);
  block.begin();
  CHECK_FALSE(block.moved(2 * 4096 + 100));
  CHECK(block.offset() == 8192 + 2 * 4096);
  CHECK(block.bytes() == 2 * 4096);
  CHECK(block.memory() == memory.from(2 * 4096, 0).data);
  CHECK(block.moved(2 * 4096));
  transfer->wait();
}

TEST_CASE("a disk that is slow but makes progress is waited for") {
  const auto progress = std::make_shared<offload_nvme::Progress>();
  offload_nvme::TransferState transfer(1, progress, std::chrono::seconds(3));
  std::thread disk([&] {
    for (int i = 0; i < 18; ++i) {  // longer than the patience
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      progress->ended.fetch_add(1);  // another transfer's block
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));  // a pause that is shorter than it
    transfer.block_ended("");
  });
  CHECK_NOTHROW(transfer.wait());
  disk.join();
}

TEST_CASE("an unusable folder is refused with the remedy") {
  const TemporaryFolder temporary;
  const auto reserve = [](const std::string& path) { nvme({{"path", path}})->reserve(4096); };
  CHECK_THROWS_WITH(reserve(""), Catch::Contains("path is empty"));
  CHECK_THROWS_WITH(reserve(temporary / "none"), Catch::Contains("create the folder"));
  CHECK_THROWS_WITH(reserve("/proc/self/exe"), Catch::Contains("is not a folder"));
  CHECK_THROWS_WITH(nvme({{"path", "/tmp"}, {"block_size", "5000"}}), Catch::Contains("multiple of 4096"));
}

TEST_CASE("where the system allows no io_uring, threads are used and a warning says why") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::array<sock_filter, 4> refuses{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                             sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                                             sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                             sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{refuses.size(), const_cast<sock_filter*>(refuses.data())};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(9);
    const TemporaryFolder temporary;
    bool right = false;
    try {
      const Nvme device = nvme({{"path", temporary.path().string()}});
      const Region region = device->reserve(4096);
      Memory written(4096), found(4096);
      written.randomize(5);
      device->write(region, 0, written.span())->wait();
      device->read(region, 0, found.span())->wait();
      right = found == written;
      nvme({{"path", temporary.path().string()}, {"interface", "io_uring"}})->reserve(4096);
      right = false;
    } catch (const EnvironmentError& error) {
      right = right && std::string(error.what()).find("errno 1") != std::string::npos;
    }
    std::filesystem::remove_all(temporary.path());
    _exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
