#include <strata/error.hpp>

#include <algorithm>
#include <cctype>
#include <limits>

#include "offload/checks.hpp"
#include "offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

// Whether `act` throws Bug. Throws Failure for another exception.
bool refused(const std::string& what, const std::function<void()>& act) {
  try {
    act();
    return false;
  } catch (const Bug&) {
    return true;
  } catch (const std::exception& error) {
    throw Failure(what + " must throw Bug; it threw " + error.what());
  }
}

void must_refuse(const std::string& what, const std::function<void()>& act) {
  require(refused(what, act), what + " was accepted; it must throw Bug with the region and the range");
}

// Whether the text has a number beside `asked`.
bool has_another_figure(std::string text, const std::string& asked) {
  for (std::size_t at = text.find(asked); at != std::string::npos; at = text.find(asked)) text.erase(at, asked.size());
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

void unaligned(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.unaligned");
  const std::size_t alignment = device.limits().alignment, unit = std::max<std::size_t>(alignment, 64);
  struct Wrong {
    std::string what;
    std::size_t address, at, bytes;  // how far each is from a multiple
  };
  for (const Wrong& wrong : {Wrong{"address", 1, 0, 0}, Wrong{"offset", 0, 1, 0}, Wrong{"size", 0, 0, 1},
                             Wrong{"size", 0, 0, unit - 1}, Wrong{"address, offset and size", 3, 5, 7}}) {
    const Region region = device->reserve(16 * unit);
    Bytes before = device.buffer(16 * unit), memory = device.buffer(16 * unit);
    before.randomize(random);
    memory.randomize(random);
    device.write(region, 0, before);
    const std::size_t at = 2 * unit + wrong.at, bytes = 8 * unit + wrong.bytes;
    const std::string what = "a transfer whose " + wrong.what +
                             (wrong.what.find(',') == std::string::npos ? " is" : " are") +
                             " not a multiple of limits().alignment, " + std::to_string(alignment) + ",";
    const bool is_refused = refused(what, [&] {
      device->write(region, at, {memory.data() + wrong.address, bytes})->wait();
    });
    require(alignment > 1 || !is_refused, "limits().alignment is 1, but a write of " + std::to_string(bytes) +
                                              " bytes at " + std::to_string(at) + " was refused");
    if (!is_refused) std::copy_n(memory.data() + wrong.address, bytes, before.data() + at);
    device.expect(
        region, 0, before.data(), before.size(),
        what + (is_refused ? " was refused, but wrote all the same" : " was accepted, but wrote something else"));
    Bytes target = device.buffer(16 * unit);
    const bool read_refused = refused(what, [&] {
      device->read(region, at, {target.data() + wrong.address, bytes})->wait();
    });
    require(read_refused || first_difference(target.data() + wrong.address, before.data() + at, bytes) == bytes,
            what + " was accepted, but read something else");
    device->free(region);
  }
}

void out_of_range_refused(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.out_of_range_refused");
  const std::size_t unit = std::max<std::size_t>(device.limits().alignment, 64), bytes = 64 * unit;
  const Region before = device->reserve(bytes), region = device->reserve(bytes), behind = device->reserve(bytes);
  Bytes held = device.buffer(bytes), source = device.buffer(2 * bytes);
  held.randomize(random);
  source.randomize(random);
  for (const Region one : {before, region, behind}) device.write(one, 0, held);
  constexpr std::size_t last = std::numeric_limits<std::size_t>::max();
  for (const auto& [at, count] :
       {std::pair(bytes, unit), std::pair(bytes - unit, 2 * unit), std::pair(std::size_t{0}, bytes + unit),
        std::pair(last - unit + 1, 2 * unit), std::pair(last / 2 + 1, unit)}) {
    const std::string range =
        std::to_string(count) + " bytes at " + std::to_string(at) + " of a region of " + std::to_string(bytes);
    must_refuse("a write of " + range, [&, at = at, count = count] {
      device->write(region, at, {source.data(), count})->wait();
    });
    must_refuse("a read of " + range, [&, at = at, count = count] {
      device->read(region, at, {source.data(), count})->wait();
    });
  }
  for (const Region one : {before, region, behind})
    device.expect(one, 0, held.data(), bytes, "after transfers that were refused");
  const Region stranger{region.id + before.id + behind.id + 1000, bytes};
  device->free(region);
  for (const auto& [what, wrong] :
       {std::pair("a region that was freed", region), std::pair("a region that was never reserved", stranger),
        std::pair("the region of value 0", Region{})}) {
    must_refuse(std::string("a write to ") + what, [&, wrong = wrong] {
      device->write(wrong, 0, {source.data(), unit})->wait();
    });
    must_refuse(std::string("a read of ") + what, [&, wrong = wrong] {
      device->read(wrong, 0, {source.data(), unit})->wait();
    });
    must_refuse(std::string("free() of ") + what, [&, wrong = wrong] { device->free(wrong); });
  }
  device->free(before);
  device->free(behind);
}

void out_of_space(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.out_of_space");
  const std::size_t bytes = device.down(100'000);
  const Region kept = device->reserve(bytes);
  Bytes held = device.buffer(bytes);
  held.randomize(random);
  device.write(kept, 0, held);
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  for (const std::size_t asked : {all / 4, all - 4095, all - 100, all}) {
    const std::string what = "reserve(" + std::to_string(asked) + ")";
    try {
      device->reserve(asked);
    } catch (const EnvironmentError& error) {
      const std::string text = error.what();
      require(text.find(std::to_string(asked)) != std::string::npos && has_another_figure(text, std::to_string(asked)),
              what + " is refused with '" + text + "'; the message must give the requested and the available bytes");
      device.expect(kept, 0, held.data(), bytes, "a region after a reserve() that was refused");
      const Region next = device->reserve(bytes);
      device.write(next, 0, held);
      device.expect(next, 0, held.data(), bytes, "a region reserved after a reserve() that was refused");
      device->free(next);
      continue;
    } catch (const std::exception& error) {
      throw Failure(what + " must throw an EnvironmentError; it threw " + error.what());
    }
    throw Failure(what + " was accepted; reserve() must allocate the whole region, or throw an EnvironmentError");
  }
  device->free(kept);
}

}  // namespace strata::conformance::offload_checks
