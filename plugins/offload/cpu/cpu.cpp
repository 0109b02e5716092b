#include <strata/error.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>

#include <cstring>
#include <map>
#include <set>

#include "host_memory.hpp"

namespace {

using namespace strata;
using offload_cpu::HostRegion;

STRATA_NO_OPTIONS(CpuOptions)

// Copies are synchronous, so wait() has nothing to do.
class DoneTransfer final : public Transfer {
 public:
  void wait() override {}
};

class CpuOffload final : public OffloadDevice {
 public:
  CpuOffload(PluginContext& context, const CpuOptions& /*options*/) : context_(context) {}

  void run_begins(RunContext& run) override { device_ = &run.device(); }

  Tier tier() const override { return Tier::Host; }
  OffloadLimits limits() const override { return {.mapped = true}; }

  Region reserve(std::size_t bytes) override {
    const std::uint64_t id = ++last_id_;
    const HostRegion& held = regions_.try_emplace(id, bytes).first->second;
    if (!held.node_refused().empty())
      context_.log(
          LogLevel::Warning,
          "the system does not allow this rank to choose the NUMA node of its host memory, so access may be slower: " +
              held.node_refused());
    if (device_ != nullptr && device_->page_lock({held.data(), held.bytes()})) locked_.insert(id);
    if (device_ != nullptr && !locked_.contains(id))
      context_.log(LogLevel::Warning, "the system does not allow locking " + std::to_string(bytes) +
                                          " bytes of host memory, so they are copied more slowly; see `ulimit -l`");
    return {id, bytes};
  }

  void free(Region region) override {
    const HostRegion& held = find(region);
    if (locked_.erase(region.id) > 0) device_->page_unlock({held.data(), held.bytes()});
    regions_.erase(region.id);
  }

  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    copy(place(region, at, source), source.data, source.bytes);
    return std::make_unique<DoneTransfer>();
  }

  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    copy(target.data, place(region, at, target), target.bytes);
    return std::make_unique<DoneTransfer>();
  }

  std::optional<Span> map(Region region) override {
    const HostRegion& held = find(region);
    return Span{held.data(), held.bytes()};
  }

 private:
  // An empty span may have a null pointer, which memcpy does not allow.
  static void copy(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }

  const HostRegion& find(Region region) const {
    const auto found = regions_.find(region.id);
    if (found == regions_.end()) throw Bug("offload cpu: region {} is not reserved", region.id);
    return found->second;
  }

  std::byte* place(Region region, std::size_t at, Span span) const {
    const HostRegion& held = find(region);
    if (at > held.bytes() || span.bytes > held.bytes() - at) {
      throw Bug("offload cpu: bytes {} to {} are outside region {} of {}", at, at + span.bytes, region.id,
                held.bytes());
    }
    return held.data() + at;
  }

  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, HostRegion> regions_;
  std::set<std::uint64_t> locked_;
  PluginContext& context_;
  Device* device_ = nullptr;  // none outside of a run
};

}  // namespace

STRATA_PLUGIN(CpuOffload, CpuOptions)
