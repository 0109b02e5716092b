// The strictest offload device there may be: what a test on it does not wait for has not happened.
#include <strata/error.hpp>
#include <strata/fakes/memory_offload_device.hpp>

#include <array>
#include <cstdint>

#include "catch.hpp"

using namespace strata;
using fakes::MemoryOffloadDevice;

namespace {

using Bytes = std::array<std::uint8_t, 8>;
constexpr Bytes zeros{}, ones{1, 1, 1, 1, 1, 1, 1, 1}, twos{2, 2, 2, 2, 2, 2, 2, 2};

Span span_of(Bytes& bytes) {
  return {bytes.data(), bytes.size()};
}

Bytes held(MemoryOffloadDevice& device, Region region, std::size_t at = 0) {
  Bytes bytes{};
  device.read(region, at, span_of(bytes))->wait();
  return bytes;
}

}  // namespace

TEST_CASE("bytes move in wait and not before, in either direction") {
  MemoryOffloadDevice device;
  const Region region = device.reserve(8);
  CHECK(held(device, region) == zeros);
  Bytes source = ones;
  const auto write = device.write(region, 0, span_of(source));
  CHECK(held(device, region) == zeros);
  source = twos;  // what lies there when it is waited for is what is written
  CHECK(device.under_way() == 1);
  write->wait();
  CHECK(device.under_way() == 0);
  CHECK(held(device, region) == twos);
  write->wait();  // the second time does nothing
  CHECK(device.under_way() == 0);

  Bytes target = ones;
  const auto read = device.read(region, 0, span_of(target));
  CHECK(target == ones);
  read->wait();
  CHECK(target == twos);
}

TEST_CASE("transfers land in the order of their waits, and without a wait never") {
  MemoryOffloadDevice device;
  const Region region = device.reserve(8);
  Bytes first = ones, second = twos;
  const auto one = device.write(region, 0, span_of(first)), two = device.write(region, 0, span_of(second));
  two->wait();
  one->wait();
  CHECK(held(device, region) == ones);
  {
    const auto dropped = device.write(region, 0, span_of(second));
    CHECK(device.under_way() == 1);
  }
  CHECK(device.under_way() == 0);
  CHECK(held(device, region) == ones);
}

TEST_CASE("a transfer fails when it was told to, once, and moves nothing") {
  MemoryOffloadDevice device;
  const Region region = device.reserve(8);
  Bytes source = ones;
  device.fail_after(1, "the disk is gone");
  device.write(region, 0, span_of(source))->wait();
  source = twos;
  const auto failing = device.write(region, 0, span_of(source));
  CHECK_THROWS_AS(failing->wait(), EnvironmentError);
  CHECK(held(device, region) == ones);
  device.write(region, 0, span_of(source))->wait();
  CHECK(held(device, region) == twos);
  device.fail_after(0, "the disk is gone");
  CHECK_THROWS_WITH(device.read(region, 0, span_of(source))->wait(), "the disk is gone");
}

TEST_CASE("limits are kept: capacity, alignment, the end of a region, regions that are there") {
  MemoryOffloadDevice device({4, 1}, 24);
  const Region region = device.reserve(16);
  CHECK(device.reserved() == 16);
  CHECK_THROWS_WITH(device.reserve(9), Catch::Contains("has 8 bytes left, not 9"));
  CHECK_THROWS_AS(device.reserve(SIZE_MAX - 8), EnvironmentError);
  const Region other = device.reserve(8);
  CHECK(other.id != region.id);

  alignas(4) Bytes bytes = ones;
  CHECK_THROWS_AS(device.write(region, 2, span_of(bytes)), Bug);
  CHECK_THROWS_AS(device.write(region, 0, {bytes.data() + 1, 4}), Bug);
  CHECK_THROWS_AS(device.write(region, 0, {bytes.data(), 7}), Bug);
  CHECK_THROWS_AS(device.read(region, 12, span_of(bytes)), Bug);
  CHECK_THROWS_AS(device.read(region, SIZE_MAX - 3, span_of(bytes)), Bug);
  device.write(region, 8, span_of(bytes))->wait();
  CHECK(held(device, region, 8) == ones);
  CHECK(held(device, other) == zeros);

  device.free(region);
  CHECK(device.reserved() == 8);
  CHECK_THROWS_AS(device.free(region), Bug);
  CHECK_THROWS_AS(device.read(region, 0, span_of(bytes)), Bug);
}
