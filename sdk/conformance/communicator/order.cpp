#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <thread>

#include "communicator/checks.hpp"
#include "communicator/rank_processes.hpp"
#include "communicator/values.hpp"

namespace strata::conformance::communicator_checks {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

at::Tensor filled(std::int64_t elements, std::int64_t value) {
  return at::full({elements}, value, at::TensorOptions().dtype(at::kFloat));
}

// Throws Failure unless every element is `value`.
void all_equal(const at::Tensor& tensor, std::int64_t value, const std::string& what) {
  require(tensor.eq(value).all().item<bool>(), what + ": the output differs from what the ranks sent");
}

}  // namespace

void sends_in_order(Subject& subject) {
  require_usable(subject);
  std::mt19937_64 random = subject.random("communicator.sends_in_order");
  const std::uint64_t seed = random();
  std::vector<std::int64_t> sizes{1, 700'001};
  for (int i = 0; i < 6; ++i) sizes.push_back(static_cast<std::int64_t>(1 + random() % 5000));
  const auto message = [&](int from, int to, std::size_t number) {
    return drawn(seed + static_cast<std::uint64_t>(to) * 31 + number, from, sizes[number],
                 number % 2 == 0 ? at::kFloat : at::kByte);
  };
  for (const int ranks : {2, 3}) {
    on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
      const auto group = process.world();
      std::vector<Pending> sends, receives;
      std::vector<std::pair<at::Tensor, at::Tensor>> arrived;  // what came and what was sent
      std::vector<int> from;
      for (int peer = 0; peer < ranks; ++peer)
        for (std::size_t number = 0; number < sizes.size() && peer != process.rank; ++number)
          sends.push_back(group->send(message(process.rank, peer, number), peer));
      for (int peer = 0; peer < ranks; ++peer) {
        for (std::size_t number = 0; number < sizes.size() && peer != process.rank; ++number) {
          const at::Tensor wanted = message(peer, process.rank, number);
          arrived.emplace_back(at::zeros(wanted.sizes(), wanted.options()), wanted);
          from.push_back(peer);
          receives.push_back(group->receive(arrived.back().first, peer));
        }
      }
      for (std::size_t i = receives.size(); i-- > 0;) receives[i].wait();
      for (Pending& send : sends) send.wait();
      for (std::size_t i = 0; i < arrived.size(); ++i)
        require(same_bytes(arrived[i].first, arrived[i].second),
                "message " + std::to_string(i % sizes.size() + 1) + " of " + std::to_string(sizes.size()) +
                    " from rank " + std::to_string(from[i]) + " to rank " + std::to_string(process.rank) +
                    " differs from what was sent; the k-th receive from a rank must match that rank's k-th send to "
                    "this one");
    });
  }
}

void many_in_flight(Subject& subject) {
  require_usable(subject);
  constexpr int rounds = 25;
  constexpr std::int64_t elements = 20'011;
  for (const int ranks : {2, 3}) {
    on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
      const auto group = process.world();
      const int rank = process.rank, next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
      std::vector<at::Tensor> sums, parts, received;
      std::vector<Pending> pending;
      for (int round = 0; round < rounds; ++round) {
        sums.push_back(filled(elements, rank + round));
        pending.push_back(group->all_reduce(sums.back(), ReduceOperation::Sum));
        parts.push_back(filled(elements * ranks, -1));
        pending.push_back(group->all_gather(parts.back(), filled(elements, 10 * rank + round)));
        received.push_back(filled(elements, -1));
        pending.push_back(group->receive(received.back(), next));
        pending.push_back(group->send(filled(elements, 100 * rank + round), last));
      }
      for (std::size_t i = pending.size(); i-- > 0;) pending[i].wait();
      for (int round = 0; round < rounds; ++round) {
        const auto index = static_cast<std::size_t>(round);
        const std::string what = "round " + std::to_string(round + 1) + " of " + std::to_string(rounds) + " with " +
                                 std::to_string(4 * rounds) + " operations in flight, ";
        all_equal(sums[index], ranks * (ranks - 1) / 2 + ranks * round, what + "all_reduce");
        for (int from = 0; from < ranks; ++from)
          all_equal(parts[index].narrow(0, from * elements, elements), 10 * from + round, what + "all_gather");
        all_equal(received[index], 100 * next + round, what + "receive");
      }
    });
  }
}

void two_groups_at_once(Subject& subject) {
  require_usable(subject);
  constexpr std::int64_t elements = 50'021;
  for (const int ranks : {2, 3}) {
    on_rank_processes(subject, {.ranks = ranks, .timeout = std::chrono::seconds(10)}, [&](const RankProcess& process) {
      const auto world = process.world();
      std::vector<int> backwards;
      for (int rank = ranks; rank-- > 0;) backwards.push_back(rank);
      const auto second = process.group("backwards", backwards);
      require(second->rank() == ranks - 1 - process.rank, "a group's rank must be the position in its list of members");
      for (int round = 0; round < 10; ++round) {
        const at::Tensor first_sum = filled(elements, process.rank + round),
                         second_sum = filled(elements, 100 * process.rank + round);
        const at::Tensor gathered = filled(elements * ranks, -1);
        std::vector<Pending> pending(3);
        const bool turned = (process.rank + round) % 2 == 0;
        for (const int which : turned ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 0, 2}) {
          if (which == 0) pending[0] = world->all_reduce(first_sum, ReduceOperation::Sum);
          if (which == 1) pending[1] = second->all_reduce(second_sum, ReduceOperation::Sum);
          if (which == 2) pending[2] = second->all_gather(gathered, filled(elements, second->rank()));
        }
        for (const int which : turned ? std::vector<int>{2, 0, 1} : std::vector<int>{0, 1, 2})
          pending[static_cast<std::size_t>(which)].wait();
        const std::int64_t ranks_sum = ranks * (ranks - 1) / 2;
        all_equal(first_sum, ranks_sum + ranks * round, "all_reduce on one of two groups");
        all_equal(second_sum, 100 * ranks_sum + ranks * round, "all_reduce on the other of two groups");
        for (int from = 0; from < ranks; ++from)
          all_equal(gathered.narrow(0, from * elements, elements), from,
                    "all_gather on a group with its ranks in reverse order");
      }
    });
  }
}

void starting_does_not_block(Subject& subject) {
  require_usable(subject);
  on_rank_processes(subject, {.ranks = 2, .timeout = std::chrono::seconds(6)}, [&](const RankProcess& process) {
    constexpr std::int64_t elements = 1 << 20;
    const auto group = process.world();
    group->barrier();
    if (process.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    const std::int64_t begin = now_ms();
    const at::Tensor received = filled(elements, -1), sum = filled(elements, process.rank),
                     copy = filled(elements, process.rank);
    std::vector<Pending> pending;
    pending.push_back(group->send(filled(elements, 7 + process.rank), 1 - process.rank));
    pending.push_back(group->receive(received, 1 - process.rank));
    pending.push_back(group->all_reduce(sum, ReduceOperation::Sum));
    pending.push_back(group->broadcast(copy, 1));
    const std::int64_t taken = now_ms() - begin;
    require(process.rank == 1 || taken < 1000,
            "starting a send, a receive, an all_reduce and a broadcast of 4 MiB took " + std::to_string(taken) +
                " ms while the other rank was 2 s late; only wait() may block the host");
    for (Pending& each : pending) each.wait();
    all_equal(received, 8 - process.rank, "receive");
    all_equal(sum, 1, "all_reduce");
    all_equal(copy, 1, "broadcast");
  });
}

void wait_means_done(Subject& subject) {
  require_usable(subject);
  on_rank_processes(subject, {.ranks = 2}, [&](const RankProcess& process) {
    constexpr std::int64_t elements = 300'007;
    const auto group = process.world();
    const int rank = process.rank;
    // Each operation with the one rank late and then with the other.
    const auto late = [&](const std::function<Pending(const at::Tensor& output)>& start, std::int64_t size,
                          const std::function<void(const at::Tensor& output)>& check) {
      for (const int slow : {0, 1}) {
        const at::Tensor output = filled(size, rank + 1);
        group->barrier();
        if (rank == slow) std::this_thread::sleep_for(std::chrono::milliseconds(150));
        start(output).wait();
        check(output);
      }
    };
    const auto is = [&](const char* what, std::int64_t value) {
      return [=](const at::Tensor& output) {
        all_equal(output, value, std::string(what) + ", right after wait(), the other rank late");
      };
    };
    late([&](const at::Tensor& output) { return group->all_reduce(output, ReduceOperation::Sum); }, elements,
         is("all_reduce", 3));
    late([&](const at::Tensor& output) { return group->broadcast(output, 1); }, elements, is("broadcast", 2));
    late([&](const at::Tensor& output) { return group->all_gather(output, filled(elements, rank + 1)); }, 2 * elements,
         [&](const at::Tensor& output) {
           is("all_gather", 1)(output.narrow(0, 0, elements));
           is("all_gather", 2)(output.narrow(0, elements, elements));
         });
    late(
        [&](const at::Tensor& output) {
          return group->reduce_scatter(output, filled(2 * elements, rank + 1), ReduceOperation::Sum);
        },
        elements, is("reduce_scatter", 3));
    late([&](const at::Tensor& output) { return group->all_to_all(output, filled(2 * elements, rank + 1)); },
         2 * elements,
         [&](const at::Tensor& output) {
           is("all_to_all", 2 - rank)(output.narrow(0, (1 - rank) * elements, elements));
         });
    Pending sent;
    late(
        [&](const at::Tensor& output) {
          sent = group->send(filled(elements, 10 + rank), 1 - rank);
          return group->receive(output, 1 - rank);
        },
        elements, is("receive", 11 - rank));
    sent.wait();
  });
}

void barrier_waits(Subject& subject) {
  require_usable(subject);
  constexpr int ranks = 3, rounds = 4;
  const Shared came;
  on_rank_processes(subject, {.ranks = ranks}, [&](const RankProcess& process) {
    const auto group = process.world();
    for (int round = 0; round < rounds; ++round) {
      if (process.rank == round % ranks) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      came[round * ranks + process.rank].store(1);
      group->barrier();
      for (int other = 0; other < ranks; ++other)
        require(came[round * ranks + other].load() == 1, "rank " + std::to_string(process.rank) +
                                                             " left a barrier before rank " + std::to_string(other) +
                                                             " entered it");
    }
  });
}

}  // namespace strata::conformance::communicator_checks
