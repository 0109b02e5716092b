#include "state/digest.hpp"

#include <ATen/ops/arange.h>

#include "catch.hpp"

using namespace strata;

TEST_CASE("digests of parts add up to the whole's, for any format and cut") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kByte}) {
    const at::Tensor values = at::arange(600'000).remainder(251).to(dtype);
    const state::Digest digest(values);
    const std::uint64_t whole = digest.of(0, 600'000, 17);
    for (const std::int64_t cut : {0, 1, 299'999, 600'000}) {
      const std::uint64_t parts = digest.of(0, cut, 17) + digest.of(cut, 600'000 - cut, 17 + cut);
      CHECK((parts & state::digest_mask) == whole);
    }
  }
}

TEST_CASE("a digest sees one bit, two values that changed places, and values at other places") {
  const at::Tensor values = at::arange(1000).to(at::kFloat);
  const std::uint64_t right = state::Digest(values).of(0, 1000, 0);
  at::Tensor changed = values.clone();
  changed.mutable_data_ptr<float>()[500] = std::nextafter(500.0F, 0.0F);
  CHECK(state::Digest(changed).of(0, 1000, 0) != right);
  changed = values.clone();
  std::swap(changed.mutable_data_ptr<float>()[3], changed.mutable_data_ptr<float>()[700]);
  CHECK(state::Digest(changed).of(0, 1000, 0) != right);
  CHECK(state::Digest(values).of(0, 1000, 1) != right);
}

TEST_CASE("a digest of places sees an element that is there twice for another") {
  CHECK(state::digest_of_places(0, 10) == 45);
  CHECK(state::digest_of_places(4, 4) == 0);
  const auto sum = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return (state::digest_of_places(a, b) + state::digest_of_places(c, d)) % state::places_modulus;
  };
  for (int power = 1; power < 40; ++power) {
    const std::int64_t half = std::int64_t{1} << power;
    CAPTURE(power);
    CHECK(sum(0, half, half, 2 * half) == state::digest_of_places(0, 2 * half));
    CHECK(sum(0, half, 0, half) != state::digest_of_places(0, 2 * half));
  }
}
