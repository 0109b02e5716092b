// Host memory as an offload device: regions are blocks of memory, transfers are synchronous copies. An offload device
// defines where reserve() takes its bytes from and what happens between write() or read() and Transfer::wait();
// <strata/offload_device.hpp> is the contract.
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

// A device that copies on a thread, or queues I/O in the kernel, waits here; the caller's span stays alive until then.
class Done final : public Transfer {
 public:
  void wait() override {}
};

class HostMemory final : public OffloadDevice {
 public:
  HostMemory(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  Tier tier() const override { return Tier::Host; }
  OffloadLimits limits() const override { return {.alignment = 1, .transfers_in_flight = 1, .mapped = true}; }

  // Takes the whole capacity at once, as zeros, or throws with the bytes needed and available.
  Region reserve(std::size_t bytes) override {
    const auto memory =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes > memory - reserved_)
      throw EnvironmentError(
          "{} bytes of host memory are asked for, and of this machine's {} bytes {} are not reserved", bytes, memory,
          memory - reserved_);
    regions_[++last_id_].resize(bytes);
    reserved_ += bytes;
    return {last_id_, bytes};
  }

  void free(Region region) override {
    reserved_ -= find(region).size();
    regions_.erase(region.id);
  }

  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    std::byte* const place = inside(region, at, source.bytes);
    if (source.bytes > 0) std::memcpy(place, source.data, source.bytes);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    const std::byte* const place = inside(region, at, target.bytes);
    if (target.bytes > 0) std::memcpy(target.data, place, target.bytes);
    return std::make_unique<Done>();
  }

  // The host computes in place, without transfers. Where the host cannot address a region, limits().mapped is false.
  std::optional<Span> map(Region region) override { return Span{find(region).data(), find(region).size()}; }

 private:
  std::vector<std::byte>& find(Region region) {
    const auto found = regions_.find(region.id);
    if (found == regions_.end()) throw Bug("region {} is not reserved", region.id);
    return found->second;
  }
  std::byte* inside(Region region, std::size_t at, std::size_t bytes) {
    std::vector<std::byte>& memory = find(region);
    if (at > memory.size() || bytes > memory.size() - at)
      throw Bug("bytes {} to {} are outside a region of {}", at, at + bytes, memory.size());
    return memory.data() + at;
  }

  std::uint64_t last_id_ = 0;
  std::size_t reserved_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> regions_;
};

}  // namespace

STRATA_PLUGIN(HostMemory, NoOptions)
