#include "tools/bench/bench_ranks.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <chrono>

#include "group/group_plan.hpp"

namespace strata::bench {

namespace {

constexpr std::chrono::seconds patience{60};

group::GroupSettings group_settings(Communicator& communicator, const group::LaunchPlace& place) {
  const std::vector<std::string> moved = communicator.device_types();
  if (std::find(moved.begin(), moved.end(), "cpu") == moved.end())
    throw UserError(
        "bench measures communicators with tensors in host memory; this one moves only tensors on {}; use tests/gpu.sh "
        "on a GPU machine",
        moved.empty() ? "no device" : moved.front());
  group::GroupSettings settings;
  settings.communicator = &communicator;
  settings.rank = place.rank;
  settings.local_rank = place.local_rank;
  settings.timeout = patience;
  settings.interface_address = place.interface_address;
  return settings;
}

}  // namespace

BenchRanks::BenchRanks(Communicator& communicator, const group::LaunchPlace& place)
    : mesh_(mesh_of(place)),
      rank_(place.rank),
      factory_(std::make_unique<group::RunStore>(place, patience), group_settings(communicator, place)),
      all_(factory_.make(group::request_along(mesh_, {}, "world", axes_without({})))) {}

NamedGroups BenchRanks::connect(const std::vector<GroupSpec>& specs) {
  NamedGroups groups;
  for (const GroupSpec& spec : specs)
    groups[spec.name] = factory_.make(group::data_parallel_request(mesh_, place_of(mesh_, rank_), spec));
  return groups;
}

Pending start(Collective collective, Group& ranks, const at::Tensor& whole, const at::Tensor& part,
              const at::Tensor& other) {
  switch (collective) {
    case Collective::AllGather:
      return ranks.all_gather(whole, part);
    case Collective::ReduceScatter:
      return ranks.reduce_scatter(part, whole, ReduceOperation::Sum);
    case Collective::AllReduce:
      return ranks.all_reduce(whole, ReduceOperation::Sum);
    case Collective::Broadcast:
      return ranks.broadcast(whole, 0);
    case Collective::Reduce:
      return ranks.reduce(whole, 0, ReduceOperation::Sum);
    case Collective::AllToAll:
      return ranks.all_to_all(other, whole);
    default:
      return {};
  }
}

}  // namespace strata::bench
