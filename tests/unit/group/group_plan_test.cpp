#include "group/group_plan.hpp"

#include <strata/error.hpp>

#include "catch.hpp"

using namespace strata;
using Catch::Matchers::Contains;

TEST_CASE("the groups of a mesh") {
  const MeshShape mesh{2, 4, 2};
  const MeshPlace place = place_of(mesh, rank_of(mesh, {1, 2, 1}));
  CHECK(runtime::world_request(mesh).members.size() == 16);
  const runtime::GroupRequest pipeline = runtime::pipeline_request(mesh, place);
  CHECK(pipeline.name == "pipeline[data=2,tensor=1]");
  CHECK(pipeline.members == std::vector<int>{5, 13});
  const runtime::GroupRequest stage = runtime::stage_request(mesh, place);
  CHECK(stage.name == "stage[pipeline=1]");
  CHECK(stage.members == std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15});
  const runtime::GroupRequest data = runtime::data_parallel_request(mesh, place, {"data", {{0, 1, 2, 3}}});
  CHECK(data.name == "data[pipeline=1,tensor=1]");
  CHECK(data.members == std::vector<int>{9, 11, 13, 15});
  const runtime::GroupRequest node = runtime::data_parallel_request(mesh, place, {"node", {{0, 1}, {2, 3}}});
  CHECK(node.name == "node.1[pipeline=1,tensor=1]");
  CHECK(node.members == std::vector<int>{13, 15});
  const auto request = [&](const GroupSpec& spec) { runtime::data_parallel_request(mesh, place, spec); };
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2}}}), Contains("leaves out data-parallel rank 3"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3}, {3}}}), Contains("listed twice"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3, 4}}}), Contains("outside 0..3"));
  CHECK_THROWS_WITH(request({"a", {{1, 0, 2, 3}}}), Contains("ascending"));
  CHECK_THROWS_WITH(request({"a", {{0, 1, 2, 3}, {}}}), Contains("empty"));
  CHECK_THROWS_AS(request({"a", {}}), Bug);
}
