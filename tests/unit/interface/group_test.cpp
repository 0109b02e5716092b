#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <strata/checked_group.hpp>
#include <strata/error.hpp>

#include "catch.hpp"

using namespace strata;
using Catch::Matchers::Contains;

namespace {
CountingGroup group_of(int size, int rank) {
  std::vector<int> members;
  for (int member = 0; member < size; ++member) members.push_back(2 * member);
  return CountingGroup("data", rank, members);
}

at::Tensor meta(std::int64_t elements, at::ScalarType dtype = at::kFloat) {
  return at::empty({elements}, at::TensorOptions().dtype(dtype).device(at::kMeta));
}
}  // namespace

TEST_CASE("logical bytes") {
  CHECK(logical_bytes(Collective::AllGather, 1200, 4) == 900);
  CHECK(logical_bytes(Collective::ReduceScatter, 1200, 3) == 800);
  CHECK(logical_bytes(Collective::AllReduce, 1200, 4) == 1800);
  CHECK(logical_bytes(Collective::AllReduce, 1001, 3) == 1334);  // 2 x 1001 x 2/3, rounded once
  CHECK(logical_bytes(Collective::Broadcast, 1200, 2) == 600);
  CHECK(logical_bytes(Collective::Send, 1200, 2) == 1200);
  CHECK(logical_bytes(Collective::Receive, 1200, 2) == 0);
  for (const Collective collective :
       {Collective::AllGather, Collective::ReduceScatter, Collective::AllReduce, Collective::Broadcast,
        Collective::Reduce, Collective::AllToAll, Collective::Barrier})
    CHECK(logical_bytes(collective, 4096, 1) == 0);
  CHECK_THROWS_AS(logical_bytes(Collective::Send, 1, 0), Bug);
}

TEST_CASE("a group counts calls and logical bytes, on meta tensors") {
  CountingGroup group = group_of(4, 1);
  group.all_gather(meta(400), meta(100)).wait();
  group.all_gather(meta(400, at::kBFloat16), meta(100, at::kBFloat16)).wait();
  group.reduce_scatter(meta(100), meta(400), ReduceOperation::Sum).wait();
  group.all_reduce(meta(100), ReduceOperation::Max).wait();
  group.send(meta(10), 0).wait();
  group.receive(meta(10), 2).wait();
  group.all_gather(meta(0), meta(0)).wait();
  group.barrier();
  const Traffic& traffic = group.traffic();
  CHECK(traffic.calls_of(Collective::AllGather) == 3);
  CHECK(traffic.bytes_of(Collective::AllGather) == 1200 + 600);
  CHECK(traffic.bytes_of(Collective::ReduceScatter) == 1200);
  CHECK(traffic.bytes_of(Collective::AllReduce) == 600);
  CHECK(traffic.bytes_of(Collective::Send) == 40);
  CHECK(traffic.bytes_of(Collective::Receive) == 0);
  CHECK(traffic.total_bytes() == 1800 + 1200 + 600 + 40);
  Traffic sum = traffic;
  sum += traffic;
  CHECK(sum.total_bytes() == 2 * traffic.total_bytes());
  group.reset_traffic();
  CHECK(group.traffic().total_bytes() == 0);
}

TEST_CASE("broken rules are refused and not counted") {
  CountingGroup group = group_of(2, 0);
  const auto refused = [&](const std::function<void()>& call, const std::string& text) {
    CHECK_THROWS_AS(call(), Bug);
    CHECK_THROWS_WITH(call(), Contains(text) && Contains("group data (rank 0 of 2)"));
  };
  refused([&] { group.all_gather(meta(7), meta(3)).wait(); },
          "the whole has 7 elements; the rule is group size x part = 2 x 3");
  refused([&] { group.reduce_scatter(meta(3), meta(7), ReduceOperation::Sum).wait(); }, "the whole has 7 elements");
  refused([&] { group.all_gather(meta(6), meta(3, at::kHalf)).wait(); }, "one dtype and device");
  refused([&] { group.all_gather(meta(6), at::zeros({3})).wait(); }, "one dtype and device");
  refused([&] { group.all_gather(meta(6), {}).wait(); }, "undefined");
  refused(
      [&] {
        group.all_reduce(at::zeros({4, 4}).t().narrow(0, 0, 2), ReduceOperation::Sum).wait();
      },
      "not contiguous");
  refused([&] { group.broadcast(meta(3), 2).wait(); }, "no rank 2");
  refused([&] { group.reduce(meta(3), -1, ReduceOperation::Sum).wait(); }, "no rank -1");
  refused([&] { group.send(meta(3), 0).wait(); }, "cannot send to itself");
  refused([&] { group.all_to_all(meta(3), meta(3)).wait(); }, "3 elements do not divide into 2 parts");
  refused([&] { group.all_to_all(meta(4), meta(6)).wait(); }, "number of elements");
  const at::Tensor whole = at::zeros({8});
  refused([&] { group.all_gather(whole, whole.narrow(0, 4, 4)).wait(); }, "is not this rank's range");
  refused([&] { group.reduce_scatter(whole.narrow(0, 2, 4), whole, ReduceOperation::Sum).wait(); },
          "is not this rank's range");
  refused([&] { group.all_to_all(whole.narrow(0, 0, 6), whole.narrow(0, 2, 6)).wait(); }, "overlap");
  CHECK(group.traffic().calls == Traffic{}.calls);
  group.all_gather(whole, whole.narrow(0, 0, 4)).wait();
  CHECK(group.traffic().calls_of(Collective::AllGather) == 1);
  CHECK_THROWS_AS(CountingGroup("data", 2, {0, 1}), Bug);
}

TEST_CASE("pending: waits once, moves, and is waited for when dropped") {
  struct Counted final : PendingWork {
    explicit Counted(int& count_of_waits) : waits(count_of_waits) {}
    void wait() override { ++waits; }
    int& waits;
  };
  int waits = 0;
  {
    Pending pending(std::make_unique<Counted>(waits));
    CHECK(pending.waiting());
    pending.wait();
    pending.wait();
    CHECK_FALSE(pending.waiting());
    CHECK(waits == 1);
    pending = Pending(std::make_unique<Counted>(waits));
    pending = Pending(std::make_unique<Counted>(waits));  // the first is waited for
    CHECK(waits == 2);
  }
  CHECK(waits == 3);
  try {
    const Pending pending(std::make_unique<Counted>(waits));
    throw 1;
  } catch (int) {
  }
  CHECK(waits == 3);
}
