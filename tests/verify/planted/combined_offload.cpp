// Host memory with a defect: regions are numbered by each device and held by the library, so that those of two
// categories are one.
#include <strata/error.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class DoneTransfer final : public Transfer {
 public:
  void wait() override {}
};

class CombinedOffload final : public OffloadDevice {
 public:
  CombinedOffload(PluginContext& /*context*/, const NoOptions& /*options*/) {}
  Tier tier() const override { return Tier::Host; }
  OffloadLimits limits() const override { return {}; }
  Region reserve(std::size_t bytes) override {
    constexpr std::size_t most = std::size_t{1} << 32;
    if (bytes > most)
      throw EnvironmentError(std::to_string(bytes) + " bytes are needed and " + std::to_string(most) + " available");
    std::vector<std::byte>& memory = held()[++last_];
    memory.resize(std::max(memory.size(), bytes));
    return {last_, bytes};
  }
  void free(Region region) override {
    if (held().erase(region.id) == 0) throw Bug("region " + std::to_string(region.id) + " is not reserved");
  }
  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    copy(place(region, at, source), source.data, source.bytes);
    return std::make_unique<DoneTransfer>();
  }
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    copy(target.data, place(region, at, target), target.bytes);
    return std::make_unique<DoneTransfer>();
  }

 private:
  using Regions = std::map<std::uint64_t, std::vector<std::byte>>;
  Regions& held() {
    static Regions of_all;
    return planted::has("regions_of_all") ? of_all : regions_;
  }
  static void copy(void* target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  std::byte* place(Region region, std::size_t at, Span span) {
    const auto found = held().find(region.id);
    if (found == held().end()) throw Bug("region " + std::to_string(region.id) + " is not reserved");
    if (at > region.bytes || span.bytes > region.bytes - at)
      throw Bug("bytes " + std::to_string(at) + " to " + std::to_string(at + span.bytes) + " are outside region " +
                std::to_string(region.id) + " of " + std::to_string(region.bytes));
    return found->second.data() + at;
  }

  Regions regions_;
  std::uint64_t last_ = 0;
};

}  // namespace

STRATA_PLUGIN(CombinedOffload, NoOptions)
