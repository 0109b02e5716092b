#include <strata/capability.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("every capability's name leads back to it") {
  for (std::size_t i = 0; i < capabilities.size(); ++i) {
    CHECK(static_cast<std::size_t>(capabilities[i].capability) == i);
    CHECK(capability_from_string(capabilities[i].name) == capabilities[i].capability);
  }
  CHECK_FALSE(capability_from_string("split_backward"));
  CHECK(are_capabilities_of("model", "splittable_backward,tensor_parallel"));
  CHECK(are_capabilities_of("partitioner", ""));
  CHECK_FALSE(are_capabilities_of("partitioner", "releases_parameters,"));
  CHECK_FALSE(are_capabilities_of("partitioner", "splits_backward"));
  CHECK_FALSE(are_capabilities_of("scheduler", "releases_parameters"));
}
