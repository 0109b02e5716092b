#include "conformance/offload/device_under_test.hpp"
#include "data/temporary_folder.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace strata::conformance {

void Bytes::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

Bytes::Bytes(std::size_t bytes, std::size_t alignment) : bytes_(bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max<std::size_t>(alignment, 64), std::max<std::size_t>(bytes, 1)) != 0)
    throw EnvironmentError("the kit cannot allocate a buffer of {} bytes", bytes);
  memory_.reset(static_cast<std::byte*>(memory));
}

void Bytes::fill(std::byte value) {
  std::fill_n(memory_.get(), bytes_, value);
}

void Bytes::randomize(std::mt19937_64& random) {
  for (std::size_t at = 0; at < bytes_; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory_.get() + at, &word, std::min(sizeof word, bytes_ - at));
  }
}

std::size_t first_difference(const std::byte* a, const std::byte* b, std::size_t bytes) {
  if (bytes == 0 || std::memcmp(a, b, bytes) == 0) return bytes;
  return static_cast<std::size_t>(std::mismatch(a, a + bytes, b).first - a);
}

DeviceUnderTest::DeviceUnderTest(Subject& subject, fakes::OptionTexts options) {
  for (const OptionSpec& option : subject.manifest().options) {
    if (option.name != "path" || option.type != "text") continue;
    folder_ = data::make_temporary_folder("strata-offload");
    options.emplace_back("path", folder_);
  }
  try {
    device_ = std::make_unique<fakes::LoadedPlugin<OffloadDevice>>(subject.make<OffloadDevice>(options));
  } catch (...) {
    std::filesystem::remove_all(folder_);
    throw;
  }
  limits_ = (*device_)->limits();
  limits_.alignment = std::max<std::size_t>(limits_.alignment, 1);  // offload.limits_are_sane reports a 0
}

DeviceUnderTest::~DeviceUnderTest() {
  device_.reset();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void DeviceUnderTest::expect(Region region, std::size_t at, const std::byte* wanted, std::size_t bytes,
                             const std::string& what) const {
  Bytes found = buffer(bytes);
  found.fill(std::byte{0x5A});
  (*device_)->read(region, at, found.span())->wait();
  const std::size_t place = first_difference(found.data(), wanted, bytes);
  if (place == bytes) return;
  throw Failure(what + ": a read of bytes " + std::to_string(at) + " to " + std::to_string(at + bytes) + " of region " +
                std::to_string(region.id) + " (" + std::to_string(region.bytes) + " bytes) gives " +
                std::to_string(std::to_integer<int>(found.data()[place])) + " at byte " + std::to_string(at + place) +
                " instead of " + std::to_string(std::to_integer<int>(wanted[place])));
}

}  // namespace strata::conformance
