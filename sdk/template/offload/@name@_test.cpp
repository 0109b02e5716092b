// @name@: bytes are read back as written, and too large reservations are refused.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/offload_device.hpp>

#include <cstdint>
#include <numeric>

#include "catch.hpp"

using namespace strata;

TEST_CASE("bytes come back from any place of a region, and regions do not mix") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<OffloadDevice> device(library);
  const Region region = device->reserve(1000), other = device->reserve(1000);
  std::vector<std::uint8_t> source(100), target(100);
  std::iota(source.begin(), source.end(), std::uint8_t{1});
  for (const std::size_t at : {0, 1, 900}) {
    device->write(region, at, {source.data(), 100})->wait();
    device->read(region, at, {target.data(), 100})->wait();
    CHECK(target == source);
    device->read(other, at, {target.data(), 100})->wait();
    CHECK(target == std::vector<std::uint8_t>(100));
  }
  device->free(other);
  device->free(region);
}

TEST_CASE("what is not there is refused") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<OffloadDevice> device(library);
  CHECK_THROWS_AS(device->reserve(SIZE_MAX / 2), EnvironmentError);
  const Region region = device->reserve(10);
  std::uint8_t byte = 0;
  CHECK_THROWS_AS(device->read(region, 10, {&byte, 1}), Bug);
  device->free(region);
  CHECK_THROWS_AS(device->free(region), Bug);
}
