#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("Ranks of a mesh are numbered with the last axis fastest") {
  const MeshShape shape{{Axis::Pipeline, 2}, {Axis::Data, 3}, {Axis::Tensor, 2}};
  CHECK(shape.size() == 12);
  CHECK(text_of(shape) == "pipeline 2 x data 3 x tensor 2");
  for (int rank = 0; rank < shape.size(); ++rank) CHECK(rank_of(shape, place_of(shape, rank)) == rank);
  CHECK(place_of(shape, 1) == MeshPlace{{Axis::Tensor, 1}});
  CHECK(place_of(shape, 2) == MeshPlace{{Axis::Data, 1}});
  CHECK(place_of(shape, 6) == MeshPlace{{Axis::Pipeline, 1}});
  CHECK(place_of(shape, 11) == MeshPlace{{Axis::Pipeline, 1}, {Axis::Data, 2}, {Axis::Tensor, 1}});
  CHECK_THROWS_AS(place_of(shape, 12), Bug);
  CHECK_THROWS_AS(place_of(shape, -1), Bug);
  CHECK_THROWS_WITH(rank_of(shape, {{Axis::Data, 3}}),
                    Catch::Matchers::Contains("there is no data index 3 in a mesh of pipeline 2 x data 3 x tensor 2"));
}

TEST_CASE("An axis that is not given has one rank") {
  CHECK(MeshShape().size() == 1);
  CHECK(MeshShape{{Axis::Data, 5}}.size(Axis::Pipeline) == 1);
  CHECK(MeshShape{{Axis::Data, 5}} != MeshShape{{Axis::Tensor, 5}});
}

TEST_CASE("Ranks along axes") {
  const MeshShape shape{{Axis::Pipeline, 2}, {Axis::Data, 3}, {Axis::Tensor, 2}};
  const MeshPlace place = place_of(shape, 9);  // pipeline 1, data 1, tensor 1
  CHECK(ranks_along(shape, place, {}) == std::vector<int>{9});
  CHECK(ranks_along(shape, place, {Axis::Pipeline}) == std::vector<int>{3, 9});
  CHECK(ranks_along(shape, place, {Axis::Data}) == std::vector<int>{7, 9, 11});
  CHECK(ranks_along(shape, place, {Axis::Tensor, Axis::Pipeline}) == std::vector<int>{2, 3, 8, 9});
  CHECK(ranks_along(shape, place, axes_without({})).size() == 12);
  CHECK((axes_without({Axis::Data}) == std::vector{Axis::Pipeline, Axis::Tensor}));
}
