#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <strata/checked_group.hpp>
#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include "catch.hpp"
#include "group/group_factory.hpp"
#include "group/group_plan.hpp"

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

TEST_CASE("a group of one rank copies") {
  const auto group = runtime::single_group("alone", 3);
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

TEST_CASE("the groups of a mesh") {
  const MeshShape mesh{2, 4, 2};
  const MeshPlace place = place_of(mesh, rank_of(mesh, {1, 2, 1}));
  CHECK(runtime::world_request(mesh).members.size() == 16);
  const runtime::GroupRequest pipeline = runtime::pipeline_request(mesh, place);
  CHECK(pipeline.name == "pipeline[data=2,tensor=1]");
  CHECK(pipeline.members == std::vector<int>{5, 13});
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
