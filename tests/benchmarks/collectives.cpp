// A rank of the communicators' bench: collectives_bench COMMUNICATOR REPETITIONS BYTES... One line a size on rank 0, a
// JSON object: bytes, and by collective the seconds of each repetition. collectives.py starts it, and collectives_mpi.c
// does the same over MPI.
#include <ATen/ops/ones.h>
#include <strata/error.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "group/group_factory.hpp"
#include "group/launch_place.hpp"
#include "plugins/engine_plugins.hpp"

namespace {

using namespace strata;

// Seconds of each repetition, on this rank; all begin together.
std::vector<double> timed(CheckedGroup& group, int repetitions, const std::function<Pending()>& call) {
  std::vector<double> seconds;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    call().wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return seconds;
}

nlohmann::json measure(CheckedGroup& group, std::int64_t bytes, int repetitions) {
  const std::int64_t part = std::max<std::int64_t>(bytes / 4 / group.size(), 1);
  const at::Tensor whole = at::ones({part * group.size()});
  const at::Tensor one = at::ones({part});
  nlohmann::json line{{"bytes", whole.nbytes()}};
  line["all_reduce"] = timed(group, repetitions, [&] { return group.all_reduce(whole, ReduceOperation::Max); });
  line["reduce_scatter"] =
      timed(group, repetitions, [&] { return group.reduce_scatter(one, whole, ReduceOperation::Sum); });
  line["all_gather"] = timed(group, repetitions, [&] { return group.all_gather(whole, one); });
  return line;
}

void run(const std::string& name, int repetitions, const std::vector<std::int64_t>& sizes) {
  const group::LaunchPlace place = group::read_environment();
  const auto registry = plugins::open_registry("");
  const auto context = plugins::asking_context(registry->find(PluginKind::Communicator, name));
  const std::unique_ptr<Communicator> communicator = registry->create<Communicator>(name, *context);
  group::GroupSettings settings;
  settings.communicator = communicator.get();
  settings.rank = place.rank;
  settings.local_rank = place.local_rank;
  settings.timeout = std::chrono::seconds(60);
  settings.interface_address = place.interface_address;
  group::GroupFactory factory(std::make_unique<group::RunStore>(place, settings.timeout), settings);
  group::GroupRequest request{"world", {}};
  for (int rank = 0; rank < place.size; ++rank) request.members.push_back(rank);
  const std::unique_ptr<CheckedGroup> group = factory.make(request);
  for (const std::int64_t bytes : sizes) {
    const nlohmann::json line = measure(*group, bytes, repetitions);
    if (place.rank == 0) std::printf("%s\n", line.dump().c_str());
  }
  group->barrier();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fputs("usage: collectives_bench COMMUNICATOR REPETITIONS BYTES...\n", stderr);
    return 2;
  }
  std::vector<std::int64_t> sizes;
  for (int index = 3; index < count; ++index) sizes.push_back(std::atoll(arguments[index]));
  try {
    run(arguments[1], std::atoi(arguments[2]), sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
