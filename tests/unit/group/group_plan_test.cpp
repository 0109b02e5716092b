#include "group/group_plan.hpp"

#include <strata/error.hpp>

#include "catch.hpp"

using namespace strata;
using Catch::Matchers::Contains;

TEST_CASE("the groups of a mesh") {
  const MeshShape mesh{{Axis::Pipeline, 2}, {Axis::Data, 4}, {Axis::Tensor, 2}};
  const MeshPlace place = {{Axis::Pipeline, 1}, {Axis::Data, 2}, {Axis::Tensor, 1}};
  CHECK(group::request_along(mesh, place, "world", axes_without({})).name == "world");
  const group::GroupRequest pipeline = group::request_along(mesh, place, "pipeline", {Axis::Pipeline});
  CHECK(pipeline.name == "pipeline[data=2,tensor=1]");
  CHECK(pipeline.members == std::vector<int>{5, 13});
  const group::GroupRequest stage = group::request_along(mesh, place, "stage", axes_without({Axis::Pipeline}));
  CHECK(stage.name == "stage[pipeline=1]");
  CHECK(stage.members == std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15});
  const group::GroupRequest tie = group::request_some(mesh, place, "tie", Axis::Pipeline, {0, 1});
  CHECK(tie.name == "tie[data=2,tensor=1]");
  CHECK(tie.members == std::vector<int>{5, 13});
  const group::GroupRequest data = group::data_parallel_request(mesh, place, {"data", {{0, 1, 2, 3}}});
  CHECK(data.name == "data[pipeline=1,tensor=1]");
  CHECK(data.members == std::vector<int>{9, 11, 13, 15});
  const group::GroupRequest node = group::data_parallel_request(mesh, place, {"node", {{0, 1}, {2, 3}}});
  CHECK(node.name == "node.1[pipeline=1,tensor=1]");
  CHECK(node.members == std::vector<int>{13, 15});
  const auto request = [&](const GroupSpec& spec) { group::data_parallel_request(mesh, place, spec); };
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2}}}), Contains("leaves out data-parallel rank 3"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3}, {3}}}), Contains("listed twice"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3, 4}}}), Contains("outside 0..3"));
  CHECK_THROWS_WITH(request({"a", {{1, 0, 2, 3}}}), Contains("ascending"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3}, {}}}), Contains("empty"));
  CHECK_THROWS_AS(request({"a", {}}), Bug);
}
