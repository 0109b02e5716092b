// Code shared by the cases of offload devices: buffers that respect the device's limits, and copies of the expected
// contents of regions.
#pragma once
#include <strata/offload_device.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// Memory with the alignment that the device requires.
class Bytes {
 public:
  Bytes(std::size_t bytes, std::size_t alignment);
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }
  Span span() const { return {memory_.get(), bytes_}; }
  void fill(std::byte value);
  void randomize(std::mt19937_64& random);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

// Returns the first index at which two ranges differ, or `bytes` if they are equal.
std::size_t first_difference(const std::byte* a, const std::byte* b, std::size_t bytes);

// Creates an instance; a text option `path` is set to a folder of this object.
class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(Subject& subject, fakes::OptionTexts options = {});
  ~DeviceUnderTest();
  DeviceUnderTest(const DeviceUnderTest&) = delete;
  DeviceUnderTest& operator=(const DeviceUnderTest&) = delete;

  OffloadDevice& operator*() const { return **device_; }
  OffloadDevice* operator->() const { return &**device_; }
  OffloadLimits limits() const { return limits_; }
  const std::filesystem::path& folder() const { return folder_; }  // empty if the device has no path

  std::size_t down(std::size_t bytes) const { return bytes / limits_.alignment * limits_.alignment; }
  Bytes buffer(std::size_t bytes) const { return {bytes, limits_.alignment}; }

  void write(Region region, std::size_t at, const Bytes& source) const {
    device_->operator->()->write(region, at, source.span())->wait();
  }
  // Throws Failure naming the first byte of the region, from `at` on, that differs from `wanted`.
  void expect(Region region, std::size_t at, const std::byte* wanted, std::size_t bytes, const std::string& what) const;

 private:
  std::filesystem::path folder_;
  std::unique_ptr<fakes::LoadedPlugin<OffloadDevice>> device_;
  OffloadLimits limits_;
};

}  // namespace strata::conformance
