// An offload device that the host cannot address.
#pragma once
#include <strata/fakes/memory_offload_device.hpp>
#include <strata/offload_device.hpp>
#include <strata/options.hpp>

#include <memory>

STRATA_NO_OPTIONS(FarOptions)

// Bytes move only while somebody waits for them.
class FarMemory : public strata::OffloadDevice {
 public:
  FarMemory(strata::PluginContext&, const FarOptions&) {}
  strata::Tier tier() const override { return strata::Tier::Disk; }
  strata::OffloadLimits limits() const override { return memory_.limits(); }
  strata::Region reserve(std::size_t bytes) override { return memory_.reserve(bytes); }
  void free(strata::Region region) override { memory_.free(region); }
  std::unique_ptr<strata::Transfer> write(strata::Region region, std::size_t at, strata::Span source) override {
    return memory_.write(region, at, source);
  }
  std::unique_ptr<strata::Transfer> read(strata::Region region, std::size_t at, strata::Span target) override {
    return memory_.read(region, at, target);
  }

 private:
  strata::fakes::MemoryOffloadDevice memory_{{.alignment = 64}};
};
