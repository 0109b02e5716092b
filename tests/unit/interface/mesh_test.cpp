#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("the mesh") {
  const MeshShape shape{2, 3, 2};
  CHECK(shape.size() == 12);
  for (int rank = 0; rank < shape.size(); ++rank) CHECK(rank_of(shape, place_of(shape, rank)) == rank);
  CHECK(place_of(shape, 1).tensor == 1);
  CHECK(place_of(shape, 2).data == 1);
  CHECK(place_of(shape, 6).pipeline == 1);
  CHECK_THROWS_AS(place_of(shape, 12), Bug);
  CHECK_THROWS_AS(place_of(shape, -1), Bug);
  CHECK_THROWS_AS(rank_of(shape, {0, 3, 0}), Bug);
}
