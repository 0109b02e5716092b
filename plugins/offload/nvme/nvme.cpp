// Offload nvme: state lies on disks, in files without a name that are gone when the process ends. Transfers are direct
// (O_DIRECT), cut into blocks, and run in the background: through an io_uring or, where the system allows none,
// threads.
#include <strata/error.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>
#include <strata/toolbox/idle_option.hpp>

#include <map>
#include <sstream>

#include "blocks.hpp"
#include "striped_files.hpp"

namespace {

using namespace strata;
using namespace strata::offload_nvme;

#define NVME_OPTIONS(OPTION)                                                                                           \
  OPTION(text, path, "", "", "",                                                                                       \
         "Folder on the disk; required. Several folders, separated by colons, are striped block by block. No file "    \
         "remains after the run.")                                                                                     \
  OPTION(integer, queue_depth, 32, "min=1,max=1024", "blocks", "Blocks in flight per rank.")                           \
  OPTION(size, block_size, "1MiB", "min=4KiB,max=1GiB", "", "Bytes per block of a transfer; a multiple of 4 KiB.")     \
  OPTION(text, interface, "auto", "one_of=auto|io_uring|threads", "",                                                  \
         "I/O interface. auto: io_uring if the system allows it, else threads, with a warning that gives the reason.") \
  OPTION(integer, threads, 8, "min=1,max=128", "threads",                                                              \
         "Number of I/O threads with interface: threads; each transfers one block at a time.")                         \
  OPTION(boolean, checksums, false, "", "",                                                                            \
         "Keep a checksum of every 4 KiB in host memory (8 bytes each) and verify it after every read.")               \
  OPTION(integer, timeout_s, 60, "min=1,max=86400", "seconds",                                                         \
         "Time without any completed block after which a wait fails with an error.")
STRATA_OPTIONS(NvmeOptions, NVME_OPTIONS)

// Blocks the host until its blocks have ended, at the latest when it goes.
class BlocksTransfer final : public Transfer {
 public:
  explicit BlocksTransfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}
  ~BlocksTransfer() override {
    try {
      if (state_ != nullptr) state_->wait();
    } catch (const Error&) {  // whoever drops a transfer does not ask how it ended
    }
  }
  void wait() override {
    if (state_ != nullptr) std::exchange(state_, nullptr)->wait();
  }

 private:
  std::shared_ptr<TransferState> state_;
};

class NvmeOffload final : public OffloadDevice {
 public:
  NvmeOffload(PluginContext& context, const NvmeOptions& options)
      : context_(context), options_(checked(options)), progress_(progress_of(options.path)) {}

  // In a plan too, where nothing is reserved.
  void run_begins(RunContext&) override { folders(); }

  Tier tier() const override { return Tier::Disk; }
  OffloadLimits limits() const override {
    return {.alignment = alignment, .transfers_in_flight = static_cast<int>(options_.queue_depth)};
  }

  Region reserve(std::size_t bytes) override {
    if (bytes == 0) throw Bug("offload nvme: a region has at least one byte");
    const std::lock_guard lock(mutex_);
    open();
    Held held{.address = files_->reserve(bytes), .bytes = bytes};
    if (options_.checksums)
      held.checksums = std::make_shared<Checksums>((bytes + alignment - 1) / alignment, checksum_of_zeros());
    regions_.emplace(++last_id_, std::move(held));
    return {last_id_, bytes};
  }

  void free(Region region) override {
    const std::lock_guard lock(mutex_);
    const Held& held = find(region);
    if (!progress_->stuck) files_->free(held.address, held.bytes);
    regions_.erase(region.id);
  }

  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    return start(region, at, source, true);
  }
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    return start(region, at, target, false);
  }

  void shutdown() override {
    if (progress_->stuck) {
      static_cast<void>(workers_.release());
      static_cast<void>(files_.release());
    }
    workers_.reset();
    files_.reset();
  }

 private:
  struct Held {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::shared_ptr<Checksums> checksums;  // null: none are kept
  };

  static const NvmeOptions& checked(const NvmeOptions& options) {
    if (options.block_size % static_cast<std::int64_t>(alignment) != 0)
      throw UserError("block_size is {} bytes; it must be a multiple of {}", options.block_size, alignment);
    if (options.interface == "io_uring")
      toolbox::check_idle("offload nvme", "threads", options.threads, NvmeOptions().threads, "interface: threads");
    return options;
  }

  std::vector<std::string> folders() const {
    std::vector<std::string> folders;
    std::istringstream text(options_.path);
    for (std::string folder; std::getline(text, folder, ':');)
      if (!folder.empty()) folders.push_back(folder);
    if (folders.empty())
      throw UserError("offload/nvme: path is empty; give a folder on the disk, as in path: /scratch");
    return folders;
  }

  // A plan reserves nothing, so that it can be made where the disks are not.
  void open() {
    if (files_ == nullptr)
      files_ = std::make_unique<StripedFiles>(folders(), static_cast<std::size_t>(options_.block_size),
                                              [&](const std::string& line) { context_.log(LogLevel::Warning, line); });
    if (workers_ == nullptr) workers_ = make_workers();
  }

  std::unique_ptr<BlockWorkers> make_workers() const {
    if (options_.interface != "threads") {
      std::string cause;
      if (auto worker = make_uring_worker(static_cast<unsigned>(options_.queue_depth), progress_, cause)) return worker;
      const std::string why =
          "the system does not allow io_uring: " + cause +
          "; allow io_uring_setup in the seccomp profile of the container, and set sysctl kernel.io_uring_disabled=0";
      if (options_.interface == "io_uring") throw EnvironmentError("offload nvme: {}; or set interface: auto", why);
      context_.log(LogLevel::Warning, why + "; " + std::to_string(options_.threads) + " threads are used in its place");
    }
    return make_thread_workers(static_cast<unsigned>(options_.threads), progress_);
  }

  std::unique_ptr<Transfer> start(Region region, std::size_t at, Span span, bool writes) {
    const std::lock_guard lock(mutex_);
    Held& held = find(region);
    const std::string range = format("bytes {} to {} of region {}", at, at + span.bytes, region.id);
    if (at > held.bytes || span.bytes > held.bytes - at)
      throw Bug("offload nvme: {} are outside of its {}", range, held.bytes);
    if (span.bytes == 0) return std::make_unique<BlocksTransfer>(nullptr);
    if (at % alignment != 0 || span.bytes % alignment != 0 ||
        reinterpret_cast<std::uintptr_t>(span.data) % alignment != 0)
      throw Bug("offload nvme: {}, or their memory, are not aligned to {}", range, alignment);
    std::size_t count = 0;
    files_->for_each_block(held.address + at, span.bytes, [&](auto&&...) { ++count; });
    const auto state = std::make_shared<TransferState>(count, progress_, std::chrono::seconds(options_.timeout_s));
    std::vector<Block> blocks;
    blocks.reserve(count);
    files_->for_each_block(held.address + at, span.bytes,
                           [&](const File& file, std::uint64_t offset, std::size_t begin, std::size_t bytes) {
                             std::shared_ptr<std::uint64_t> checksums;
                             if (held.checksums != nullptr)
                               checksums = {held.checksums, &(*held.checksums)[(at + begin) / alignment]};
                             blocks.emplace_back(state, file, offset,
                                                 Span{static_cast<std::byte*>(span.data) + begin, bytes}, writes,
                                                 std::move(checksums));
                           });
    workers_->add(std::move(blocks));
    return std::make_unique<BlocksTransfer>(state);
  }

  Held& find(Region region) {
    const auto found = regions_.find(region.id);
    if (found == regions_.end()) throw Bug("offload nvme: region {} is not reserved", region.id);
    return found->second;
  }

  PluginContext& context_;
  NvmeOptions options_;
  std::mutex mutex_;
  std::unique_ptr<StripedFiles> files_;
  std::shared_ptr<Progress> progress_;
  std::unique_ptr<BlockWorkers> workers_;  // ends before the files
  std::map<std::uint64_t, Held> regions_;
  std::uint64_t last_id_ = 0;
};

}  // namespace

STRATA_PLUGIN(NvmeOffload, NvmeOptions, NVME_OPTIONS)
