#include "gpu_use.hpp"

#include <condition_variable>
#include <mutex>
#include <vector>

#include "catch.hpp"

using strata::cuda_device::GpuUse;

namespace {

// The first `count` reports of a watch.
std::vector<std::optional<double>> reports(const std::string& library, const std::string& bus, std::size_t count) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<double>> given;
  {
    GpuUse use(library, bus, [&](std::optional<double> percent) {
      const std::lock_guard lock(mutex);
      given.push_back(percent);
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return given.size() >= count; }));
  }
  given.resize(count);
  return given;
}

}  // namespace

TEST_CASE("A GPU's use is the mean of the driver's readings so far") {
  const std::vector<std::optional<double>> given = reports(FAKE_NVML, "0000:01:00.0", 4);
  CHECK(given[0] == 40.0);
  CHECK(given[1] == 50.0);
  CHECK(given[2] == Approx(140.0 / 3));
  CHECK(given[3] == 50.0);
}

TEST_CASE("Where the driver has no figure, none is given") {
  CHECK(reports(FAKE_NVML, "0000:02:00.0", 2) == std::vector<std::optional<double>>(2));  // as a GPU cut by MIG
  CHECK(reports(FAKE_NVML, "0000:03:00.0", 1) == std::vector<std::optional<double>>(1));
  CHECK(reports("libno-such-library.so.1", "0000:01:00.0", 1) == std::vector<std::optional<double>>(1));
}

TEST_CASE("A watch that is ended at once reports nothing more") {
  int reported = 0;
  {
    GpuUse use(FAKE_NVML, "0000:01:00.0", [&](std::optional<double>) { ++reported; });
  }
  CHECK(reported == 0);
}
