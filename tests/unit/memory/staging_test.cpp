// The places of buffers that come from other memory tiers.
#include "memory/staging.hpp"

#include <strata/error.hpp>

#include <random>
#include <utility>
#include <vector>

#include "catch.hpp"

using namespace strata;
using memory::Places;

TEST_CASE("a range is taken at the lowest place where it fits") {
  Places places;
  CHECK(places.take(1) == 0);
  CHECK(places.take(4097) == 4096);
  CHECK(places.take(4096) == 12288);
  places.give_back(4096);
  CHECK(places.take(8193) == 16384);
  CHECK(places.take(8192) == 4096);
  CHECK(places.extent() == 28672);
  places.give_back(0);
  CHECK(places.take(4096) == 0);
  CHECK_THROWS_AS(places.give_back(1), Bug);
}

TEST_CASE("ranges never overlap, and the same calls give the same places") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    Places one, other;
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // begin, end
    for (int call = 0; call < 100; ++call) {
      if (!taken.empty() && random() % 2 == 0) {
        const std::size_t which = random() % taken.size();
        one.give_back(taken[which].first);
        other.give_back(taken[which].first);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      const auto bytes = static_cast<std::int64_t>(1 + random() % 50'000);
      const std::int64_t begin = one.take(bytes);
      REQUIRE(other.take(bytes) == begin);
      for (const auto& [first, end] : taken) REQUIRE((begin + bytes <= first || end <= begin));
      taken.emplace_back(begin, begin + bytes);
      REQUIRE(begin + bytes <= one.extent());
    }
  }
}

TEST_CASE("a program that needs more room than was made is a bug") {
  StateStore store(at::kCPU);
  memory::Staging staging(store);
  staging.reserve(8192);
  const std::int64_t first = staging.take(4096), second = staging.take(4096);
  CHECK(reinterpret_cast<std::uintptr_t>(staging.bytes(second, 4096).const_data_ptr()) % 4096 == 0);
  CHECK_THROWS_AS(staging.take(1), Bug);
  CHECK_THROWS_AS(staging.reserve(1), Bug);
  (void)first;
}
