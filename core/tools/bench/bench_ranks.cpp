#include "tools/bench/bench_ranks.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <chrono>

#include "group/group_plan.hpp"

namespace strata::bench {

namespace {

constexpr std::chrono::seconds patience{60};

runtime::GroupSettings group_settings(Communicator& communicator, const launch::LaunchPlace& place) {
  const std::vector<std::string> moved = communicator.device_types();
  if (std::find(moved.begin(), moved.end(), "cpu") == moved.end())
    throw UserError("bench measures communicators with tensors in host memory; this one moves only tensors on " +
                    (moved.empty() ? "no device" : moved.front()) + "; use tests/gpu.sh on a GPU machine");
  runtime::GroupSettings settings;
  settings.communicator = &communicator;
  settings.rank = place.rank;
  settings.local_rank = place.local_rank;
  settings.timeout = patience;
  settings.interface_address = place.interface_address;
  return settings;
}

}  // namespace

BenchRanks::BenchRanks(Communicator& communicator, const Settings& settings)
    : mesh_{1, settings.place.size, 1},
      rank_(settings.place.rank),
      factory_(std::make_unique<runtime::RunStore>(settings.place, patience),
               group_settings(communicator, settings.place)),
      all_(factory_.make(runtime::world_request(mesh_))) {}

NamedGroups BenchRanks::connect(const std::vector<GroupSpec>& specs) {
  NamedGroups groups;
  for (const GroupSpec& spec : specs)
    groups[spec.name] = factory_.make(runtime::data_parallel_request(mesh_, place_of(mesh_, rank_), spec));
  return groups;
}

}  // namespace strata::bench
