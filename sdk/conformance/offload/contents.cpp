#include <algorithm>
#include <cstring>
#include <set>

#include "offload/checks.hpp"
#include "offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

// A region and what it must hold.
struct Held {
  Region region;
  std::vector<std::byte> wanted;  // as far as whole units of the alignment go
};

Held reserve(const DeviceUnderTest& device, std::size_t bytes) {
  const Region region = device->reserve(bytes);
  require(region.bytes == bytes && region.id != 0,
          "reserve(" + std::to_string(bytes) + ") gave region " + std::to_string(region.id) + " of " +
              std::to_string(region.bytes) + " bytes; a region must have the requested size and an id other than 0");
  return {region, std::vector<std::byte>(device.down(bytes))};
}

// One write or read at a random range.
void use(const DeviceUnderTest& device, Held& held, std::mt19937_64& random, const std::string& what) {
  const std::size_t bytes = device.draw_size(std::min<std::size_t>(held.wanted.size(), 1 << 20), random);
  const std::size_t at = device.draw_place(held.wanted.size() - bytes, random);
  if (random() % 2 == 0) {
    Bytes source = device.buffer(bytes);
    source.randomize(random);
    device.write(held.region, at, source);
    std::copy_n(source.data(), bytes, held.wanted.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    device.expect(held.region, at, held.wanted.data() + at, bytes, what);
  }
}

}  // namespace

void limits_are_sane(Subject& subject) {
  const auto device = DeviceUnderTest(subject);
  const OffloadLimits limits = device->limits();
  require(device->tier() != Tier::Device,
          "tier() is Device; an offload device holds bytes on another tier, Host or Disk");
  require(
      limits.alignment > 0 && (limits.alignment & (limits.alignment - 1)) == 0,
      "limits().alignment is " + std::to_string(limits.alignment) + "; it must be a power of two, 1 for no alignment");
  require(limits.transfers_in_flight >= 1,
          "limits().transfers_in_flight is " + std::to_string(limits.transfers_in_flight) + "; it must be at least 1");
}

void any_size(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.any_size");
  const std::size_t alignment = device.limits().alignment;
  std::vector<std::size_t> sizes{1, 2, 3, 511, 512, 513, 4095, 4096, 4097, 65537, 1 << 20, 64 << 20};
  for (const std::size_t around : {alignment, 3 * alignment})
    for (const std::size_t bytes : {around - 1, around, around + 1})
      if (bytes > 0) sizes.push_back(bytes);
  for (int i = 0; i < 5; ++i) sizes.push_back(1 + random() % 3'000'000);
  for (const std::size_t bytes : sizes) {
    const Held held = reserve(device, bytes);
    Bytes source = device.buffer(held.wanted.size());
    source.randomize(random);
    if (source.size() > 0) device.write(held.region, 0, source);
    device.expect(held.region, 0, source.data(), source.size(),
                  "a region of " + std::to_string(bytes) + " bytes, written whole");
    device->free(held.region);
  }
}

void reads_what_was_written(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.reads_what_was_written");
  Held held = reserve(device, 3'000'017 + random() % 1000);
  for (int i = 0; i < 300; ++i)
    use(device, held, random, "after " + std::to_string(i) + " random writes and reads of one region");
  device.expect(held.region, 0, held.wanted.data(), held.wanted.size(),
                "after 300 random writes and reads of one region");
  device->free(held.region);
}

void starts_with_zeros(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.starts_with_zeros");
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1'000'003}, std::size_t{8} << 20}) {
    for (int round = 0; round < 3; ++round) {
      const Held held = reserve(device, bytes);
      device.expect(
          held.region, 0, held.wanted.data(), held.wanted.size(),
          round == 0 ? "a region as it was reserved" : "a region reserved where another was written and freed");
      Bytes source = device.buffer(held.wanted.size());
      source.randomize(random);
      device.write(held.region, 0, source);
      device->free(held.region);
    }
  }
}

void regions_do_not_mix(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.regions_do_not_mix");
  std::vector<Held> all;
  std::set<std::uint64_t> ids;
  const auto check = [&](const Held& held, const std::string& what) {
    device.expect(held.region, 0, held.wanted.data(), held.wanted.size(), what);
  };
  for (int i = 0; i < 400; ++i) {
    const auto choice = random() % 10;
    if (all.size() < 2 || (choice == 0 && all.size() < 8)) {
      all.push_back(reserve(device, device.draw_size(1 << 20, random) + random() % 100));
      require(ids.insert(all.back().region.id).second,
              "two regions that are both reserved have the id " + std::to_string(all.back().region.id));
    } else if (choice == 1) {
      const std::size_t which = random() % all.size();
      check(all[which], "a region before it is freed, while others were written");
      device->free(all[which].region);
      ids.erase(all[which].region.id);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      use(device, all[random() % all.size()], random,
          "one of " + std::to_string(all.size()) + " regions that are written alternately");
    }
  }
  for (const Held& held : all) {
    check(held, "one of " + std::to_string(all.size()) + " regions after all were written alternately");
    device->free(held.region);
  }
}

void map_is_the_region(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.map_is_the_region");
  const Held first = reserve(device, 1'000'003), second = reserve(device, 70'001);
  const std::optional<Span> memory = device->map(first.region), other = device->map(second.region);
  const bool mapped = device->limits().mapped;
  require(memory.has_value() == mapped && other.has_value() == mapped,
          std::string("limits().mapped is ") + (mapped ? "true, but map() returns nothing for a region"
                                                       : "false, but map() returns the memory of a region"));
  if (!mapped) throw Skip("limits().mapped is false: the host cannot address the regions");
  require(memory->bytes == first.region.bytes && memory->data != nullptr,
          "map() of a region of " + std::to_string(first.region.bytes) + " bytes gives a span of " +
              std::to_string(memory->bytes));
  require(reinterpret_cast<std::uintptr_t>(memory->data) % device.limits().alignment == 0,
          "map() gives memory that is not aligned to limits().alignment");
  auto* const bytes = static_cast<std::byte*>(memory->data);
  const auto* const others = static_cast<std::byte*>(other->data);
  require(others + other->bytes <= bytes || bytes + memory->bytes <= others,
          "map() gives overlapping memory for two regions");
  require(std::all_of(bytes, bytes + memory->bytes, [](std::byte byte) { return byte == std::byte{0}; }),
          "a fresh region's mapped memory is not zeros");
  Bytes source = device.buffer(first.wanted.size());
  source.randomize(random);
  std::memcpy(bytes, source.data(), source.size());
  device.expect(first.region, 0, source.data(), source.size(), "bytes written through map()");
  source.randomize(random);
  device.write(first.region, 0, source);
  require(first_difference(bytes, source.data(), source.size()) == source.size(),
          "the memory from map() does not show a later write(); it must be the region's memory until free()");
  const std::optional<Span> again = device->map(first.region);
  require(again && again->data == memory->data,
          "map() returns another address the second time; the first must stay valid until free()");
  device->free(first.region);
  device->free(second.region);
}

}  // namespace strata::conformance::offload_checks
