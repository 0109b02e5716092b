// A rank of the tests with real processes: group_ranks SCENARIO [communicator.timeout_s [communicator]]. Exit status
// 0: all as expected; 1: not; else that of the Strata error that ended it.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fakes/plugin_context.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "group/group_factory.hpp"
#include "plugins/registry.hpp"
#include "tools/command/leave.hpp"
#include "unit/communicator/scenario.hpp"

namespace {

using namespace strata;

struct Rank {
  group::LaunchPlace place;
  std::chrono::milliseconds timeout;
  group::RunStore* store;
  group::GroupFactory& factory;
  group::GroupSettings settings;

  std::unique_ptr<CheckedGroup> world() const {
    group::GroupRequest request{"world", {}};
    for (int rank = 0; rank < place.size; ++rank) request.members.push_back(rank);
    return factory.make(request);
  }
};

using Scenario = void (*)(const Rank&);

void collectives(const Rank& rank) {
  const auto group = rank.world();
  check_collectives(*group);
  check_equal_bits(*group);
  check_many_in_flight(*group);
  group->barrier();
}

// Two disjoint groups and one over all, as a mesh has them.
void several_groups(const Rank& rank) {
  const auto world = rank.world();
  const int half = rank.place.size / 2;
  group::GroupRequest request{rank.place.rank < half ? "low" : "high", {}};
  for (int other = 0; other < rank.place.size; ++other)
    if ((other < half) == (rank.place.rank < half)) request.members.push_back(other);
  const auto mine = rank.factory.make(request);
  expect(mine->size() == static_cast<int>(request.members.size()), "the half group's size");
  const at::Tensor sum = at::zeros({3}).fill_(rank.place.rank);
  mine->all_reduce(sum, ReduceOperation::Sum).wait();
  int wanted = 0;
  for (const int member : request.members) wanted += member;
  expect(sum.eq(wanted).all().item<bool>(), "the sum over half the ranks");
  check_many_in_flight(*mine);
  check_many_in_flight(*world);
  world->barrier();
}

void killed(const Rank& rank) {
  const auto group = rank.world();
  const at::Tensor tensor = at::zeros({1 << 20});
  for (int round = 0;; ++round) {
    if (rank.place.rank == rank.place.size - 1 && round == 5) raise(SIGKILL);
    group->all_reduce(tensor, ReduceOperation::Sum).wait();
  }
}

bool is_last(const Rank& rank) {
  return rank.place.rank == rank.place.size - 1;
}

// The last rank computes for much longer than the timeout: connecting, a collective and a message wait for it.
void computes_long(const Rank& rank) {
  const auto compute = [&] {
    if (is_last(rank)) std::this_thread::sleep_for(5 * rank.timeout / 2);
  };
  compute();
  const auto group = rank.world();
  compute();
  const at::Tensor tensor = at::zeros({7}).fill_(1);
  group->all_reduce(tensor, ReduceOperation::Sum).wait();
  expect(tensor[0].item<float>() == static_cast<float>(rank.place.size), "the sum over all ranks");
  compute();
  if (is_last(rank))
    for (int peer = 0; peer + 1 < rank.place.size; ++peer) group->send(tensor, peer).wait();
  else
    group->receive(tensor, rank.place.size - 1).wait();
}

// An error ends `wait` in time.
void ends_within(std::chrono::milliseconds limit, const std::function<void()>& wait) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    wait();
  } catch (const EnvironmentError&) {
    expect(std::chrono::steady_clock::now() - begin < limit, "the error comes in time");
    throw;
  }
}

// An all_reduce of the others while the last rank does `act` instead.
void ends_within(const Rank& rank, std::chrono::milliseconds limit, void (*act)()) {
  const auto group = rank.world();
  group->barrier();
  if (is_last(rank)) act();
  ends_within(limit, [&] { group->all_reduce(at::zeros({7}), ReduceOperation::Sum).wait(); });
}
void dies(const Rank& rank) {
  ends_within(rank, std::chrono::seconds(2), [] { raise(SIGKILL); });
}
// The others are still writing to the last rank when it dies: small messages, as many as fit into the connection.
void dies_while_written_to(const Rank& rank) {
  const auto group = rank.world();
  group->barrier();
  if (is_last(rank)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    raise(SIGKILL);
  }
  const at::Tensor tensor = at::zeros({16});
  ends_within(std::chrono::seconds(5), [&] {
    std::vector<Pending> messages;
    for (int i = 0; i < 100000; ++i) messages.push_back(group->send(tensor, rank.place.size - 1));
    for (Pending& message : messages) message.wait();
    group->barrier();
  });
}
void is_stopped(const Rank& rank) {
  ends_within(rank, std::chrono::seconds(10), [] { raise(SIGSTOP); });
}
void throws(const Rank& rank) {
  ends_within(rank, std::chrono::seconds(5), [] { throw std::runtime_error("an error of the program's own"); });
}

// Each waits for what the other would do next.
void circle(const Rank& rank) {
  const auto group = rank.world();
  const at::Tensor tensor = at::zeros({7});
  const int last = rank.place.size - 1;
  if (rank.place.rank == 0) group->receive(tensor, last).wait();
  group->all_reduce(tensor, ReduceOperation::Sum).wait();
  if (rank.place.rank == last) group->send(tensor, 0).wait();
}

// An error passes while a message is under way: its memory is unmapped, and the peer sends all the same.
void dropped(const Rank& rank) {
  const auto group = rank.world();
  constexpr std::size_t bytes = 1 << 20;
  if (rank.place.rank == 1) {
    const at::Tensor tensor = at::zeros({bytes / 4});
    group->barrier();
    try {
      group->send(tensor, 0).wait();
    } catch (const EnvironmentError&) {  // the receiver has given up
    }
    return;
  }
  try {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const at::Tensor tensor = at::from_blob(memory, {bytes / 4}, [](void* data) { munmap(data, bytes); });
    const Pending pending = group->receive(tensor, 1);
    throw std::runtime_error("an error of the program's own");
  } catch (const std::runtime_error&) {
  }
  group->barrier();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// Two sets of groups of one name in one set of processes, one after the other and both at once.
void two_engines(const Rank& rank) {
  const auto first = rank.world();
  for (int round = 0; round < 2; ++round) {
    group::GroupFactory factory(std::make_unique<group::RunStore>(rank.place, rank.timeout), rank.settings);
    const auto second = Rank{rank.place, rank.timeout, nullptr, factory, rank.settings}.world();
    for (int i = 0; i < 3; ++i) {
      check_many_in_flight(*second);
      if (i == 1) check_many_in_flight(*first);
    }
    second->barrier();
  }
  first->barrier();
}

// Rank 1 never comes to the run, see play().
void absent(const Rank& rank) {
  rank.world();
}

// The error of one operation ends those queued behind it, at once.
void queued_behind_an_error(const Rank& rank) {
  const auto group = rank.world();
  if (rank.place.rank == 1) raise(SIGSTOP);
  std::vector<Pending> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(group->all_reduce(at::zeros({100000}), ReduceOperation::Sum));
  int errors = 0;
  for (Pending& each : pending) {
    try {
      each.wait();
    } catch (const EnvironmentError&) {
      ++errors;
    }
  }
  expect(errors == 10, "every operation behind the failed one fails");
  throw EnvironmentError("all ten failed");
}

void plugins_agree(const Rank& rank) {
  rank.store->agree("the loaded plugins", "digest 12");
}
void plugins_differ(const Rank& rank) {
  rank.store->agree("the loaded plugins", rank.place.rank == 1 ? "digest 13" : "digest 12");
}

void wrong_shape(const Rank& rank) {
  const auto group = rank.world();
  group->all_gather(at::zeros({3}), at::zeros({2})).wait();
}

void other_size(const Rank& rank) {
  const auto group = rank.world();
  ends_within(std::chrono::seconds(5),
              [&] { group->all_reduce(at::zeros({rank.place.rank == 0 ? 100 : 50}), ReduceOperation::Sum).wait(); });
}

void other_operation(const Rank& rank) {
  const auto group = rank.world();
  const at::Tensor tensor = at::zeros({100000});
  ends_within(std::chrono::seconds(5), [&] {
    (rank.place.rank == 0 ? group->all_reduce(tensor, ReduceOperation::Sum) : group->broadcast(tensor, 1)).wait();
  });
}

// Ends in good order while the group's operations are not waited for.
void leaves_early(const Rank& rank) {
  const auto group = rank.world();
  group->barrier();
  Pending pending = group->all_reduce(at::zeros({1000}), ReduceOperation::Sum);
}

const std::map<std::string, Scenario> scenarios{{"collectives", collectives},
                                                {"collectives_through_host", collectives},
                                                {"several_groups", several_groups},
                                                {"killed", killed},
                                                {"computes_long", computes_long},
                                                {"dies", dies},
                                                {"dies_while_written_to", dies_while_written_to},
                                                {"is_stopped", is_stopped},
                                                {"throws", throws},
                                                {"circle", circle},
                                                {"dropped", dropped},
                                                {"two_engines", two_engines},
                                                {"absent", absent},
                                                {"queued_behind_an_error", queued_behind_an_error},
                                                {"plugins_agree", plugins_agree},
                                                {"plugins_differ", plugins_differ},
                                                {"wrong_shape", wrong_shape},
                                                {"other_size", other_size},
                                                {"other_operation", other_operation},
                                                {"leaves_early", leaves_early}};

int play(const std::string& name, std::chrono::milliseconds timeout, const std::string& plugin) {
  const group::LaunchPlace place = group::read_environment();
  if (name == "absent" && place.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
  auto store = std::make_unique<group::RunStore>(place, timeout);
  group::RunStore* store_pointer = store.get();
  plugins::PluginRegistry registry(plugins::search_folders({}));
  fakes::FakePluginContext context("communicator/" + plugin,
                                   default_options(registry.find(PluginKind::Communicator, plugin).manifest.options));
  const std::unique_ptr<Communicator> communicator = registry.create<Communicator>(plugin, context);
  group::GroupSettings settings;
  settings.communicator = communicator.get();
  settings.rank = place.rank;
  settings.local_rank = place.local_rank;
  settings.timeout = timeout;
  settings.interface_address = place.interface_address;
  settings.through_host = name.ends_with("_through_host");
  group::GroupFactory factory(std::move(store), settings);
  scenarios.at(name)(Rank{place, timeout, store_pointer, factory, settings});
  return 0;
}

int run(int count, char** arguments) {
  const std::string name = count > 1 ? arguments[1] : "";
  const int seconds = count > 2 ? std::atoi(arguments[2]) : 60;
  if (!scenarios.contains(name)) return 64;
  int status = 0;
  try {
    status = play(name, std::chrono::seconds(seconds), count > 3 ? arguments[3] : "gloo");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  return status;
}

}  // namespace

int main(int count, char** arguments) {
  strata::cli::leave(run(count, arguments));
}
