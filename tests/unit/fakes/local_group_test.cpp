#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/fakes/counting_group.hpp>
#include <strata/fakes/local_group.hpp>

#include "catch.hpp"
#include "unit/communicator/scenario.hpp"

using namespace strata;
using Catch::Matchers::Contains;

TEST_CASE("local groups on threads pass the communicators' suite") {
  for (const int size : {1, 2, 3, 4}) {
    fakes::on_ranks(size, [](CheckedGroup& group) {
      check_collectives(group);
      check_equal_bits(group);
      check_many_in_flight(group);
      group.barrier();
    });
  }
}

TEST_CASE("local groups that move at the wait give the same, and nothing before it") {
  for (const int size : {1, 2, 3}) {
    const auto groups = fakes::local_groups(size, std::chrono::seconds(30), fakes::Movement::AtWait);
    fakes::on_ranks(size, [&](CheckedGroup& world) {
      CheckedGroup& group = *groups[static_cast<std::size_t>(world.rank())];
      check_collectives(group);
      check_equal_bits(group);
      check_many_in_flight(group);
      CHECK(fakes::under_way(group) == 0);
    });
  }
  const auto groups = fakes::local_groups(2, std::chrono::milliseconds(0), fakes::Movement::AtWait);
  const at::Tensor first = at::full({4}, 1.0);
  const at::Tensor second = at::full({4}, 2.0);
  Pending one = groups[0]->all_gather(first, first.narrow(0, 0, 2));
  Pending two = groups[1]->all_gather(second, second.narrow(0, 2, 2));
  CHECK(first.narrow(0, 0, 2).equal(at::full({2}, 1.0)));  // an input may be read
  CHECK(first.narrow(0, 2, 2).isnan().all().item<bool>());
  CHECK(fakes::under_way(*groups[0]) == 1);
  one.wait();
  CHECK(first.narrow(0, 2, 2).equal(at::full({2}, 2.0)));
  second.narrow(0, 2, 2).zero_();
  CHECK_THROWS_WITH(two.wait(), Contains("input was written between its start and its wait()"));
}

TEST_CASE("local groups driven by one thread") {
  const auto groups = fakes::local_groups(2, std::chrono::milliseconds(0));
  const at::Tensor first = at::full({3}, 1.0);
  const at::Tensor second = at::full({3}, 2.0);
  Pending one = groups[0]->all_reduce(first, ReduceOperation::Sum);
  Pending two = groups[1]->all_reduce(second, ReduceOperation::Sum);
  one.wait();
  two.wait();
  CHECK(first.equal(at::full({3}, 3.0)));
  CHECK(second.equal(first));
  Pending alone = groups[0]->all_reduce(first, ReduceOperation::Sum);
  CHECK_THROWS_WITH(alone.wait(), Contains("not started by rank 1") && Contains("start it on every rank"));
}

TEST_CASE("local groups name members that call different operations") {
  const auto groups = fakes::local_groups(2, std::chrono::milliseconds(0));
  const at::Tensor three = at::zeros({3});
  const at::Tensor four = at::zeros({4});
  Pending one = groups[0]->all_reduce(three, ReduceOperation::Sum);
  Pending two = groups[1]->all_reduce(four, ReduceOperation::Sum);
  CHECK_THROWS_AS(one.wait(), Bug);
  CHECK_THROWS_WITH(two.wait(), Contains("all_reduce of 3 Float") && Contains("all_reduce of 4 Float"));
  Pending send = groups[0]->send(three, 1);
  Pending receive = groups[1]->receive(four, 0);
  CHECK_THROWS_AS(send.wait(), Bug);
  CHECK_THROWS_AS(receive.wait(), Bug);
}

TEST_CASE("the first failure on a rank comes out, and ends the others") {
  CHECK_THROWS_WITH(fakes::on_ranks(3,
                                    [](CheckedGroup& group) {
                                      if (group.rank() == 1) throw UserError("rank 1 has had enough");
                                      group.barrier();
                                    }),
                    Contains("had enough"));
}

TEST_CASE("a counting group of any size") {
  const auto group = fakes::counting_group(64, 5);
  CHECK(group->rank() == 5);
  CHECK(group->size() == 64);
  group->all_reduce(at::zeros({64}), ReduceOperation::Sum).wait();
  CHECK(group->traffic().bytes_of(Collective::AllReduce) == 2 * 63 * 4);
}
