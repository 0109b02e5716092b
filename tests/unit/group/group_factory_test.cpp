#include "group/group_factory.hpp"

#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("a group of one rank copies") {
  const auto group = group::single_group("alone", 3);
  CHECK(group->rank() == 0);
  CHECK(group->members() == std::vector<int>{3});
  const at::Tensor input = at::zeros({5}).fill_(2);
  const at::Tensor output = at::zeros({5});
  group->all_gather(output, input).wait();
  CHECK(output.equal(input));
  group->reduce_scatter(output.zero_(), input, ReduceOperation::Sum).wait();
  CHECK(output.equal(input));
  group->all_gather(input, input).wait();
  group->all_to_all(output.zero_(), input).wait();
  CHECK(output.equal(input));
  group->all_reduce(output, ReduceOperation::Max).wait();
  group->broadcast(output, 0).wait();
  group->barrier();
  CHECK(output.equal(input));
  CHECK(group->traffic().total_bytes() == 0);
  CHECK(group->traffic().calls_of(Collective::Barrier) == 1);
  CHECK_THROWS_AS(group->send(output, 0), Bug);
}
