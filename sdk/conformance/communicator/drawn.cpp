// Drawn programs of collectives and messages among ranks in threads, compared with sums and copies of their inputs.
#include <ATen/ops/cat.h>
#include <strata/error.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "conformance/communicator/checks.hpp"
#include "conformance/communicator/program.hpp"
#include "conformance/communicator/rank_threads.hpp"
#include "conformance/drawn/search.hpp"

namespace strata::conformance::communicator_checks {

namespace {

constexpr std::chrono::seconds patience{20};  // for all that a program does

bool takes_part(const DrawnOperation& operation, int rank) {
  const bool is_message = operation.collective == Collective::Send;
  return !is_message || rank == operation.root || rank == operation.to;
}

c10::intrusive_ptr<c10d::Work> start(c10d::Backend& backend, DrawnOperation& one, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  at::Tensor whole = one.outputs[index].tensor(), input = one.brought[index], output = whole;
  const c10d::ReduceOp reduction = one.reduction == ReduceOperation::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
  std::vector<at::Tensor> tensors{whole}, sent{input};
  std::vector<std::int64_t> equal_parts;
  c10d::AllreduceOptions options;
  options.reduceOp = reduction;
  switch (one.collective) {
    case Collective::AllGather:
      if (one.is_in_place) input = whole.narrow(0, rank * one.elements, one.elements);
      return backend._allgather_base(output, input);
    case Collective::ReduceScatter:
      if (one.is_in_place) input = whole, output = whole.narrow(0, rank * one.elements, one.elements);
      return backend._reduce_scatter_base(output, input, {.reduceOp = reduction});
    case Collective::AllReduce:
      return backend.allreduce(tensors, options);
    case Collective::Broadcast:
      return backend.broadcast(tensors, {.rootRank = one.root});
    case Collective::Reduce:
      return backend.reduce(tensors, {.reduceOp = reduction, .rootRank = one.root});
    case Collective::AllToAll:
      return backend.alltoall_base(output, input, equal_parts, equal_parts);
    case Collective::Send:
      return rank == one.root ? backend.send(sent, one.to, 0) : backend.recv(tensors, one.root, 0);
    default:
      return backend.barrier();
  }
}

// Ranks that never come back keep it.
struct Run {
  Program program;
  std::vector<std::unique_ptr<fakes::LoadedPlugin<Communicator>>> plugins;  // by rank
  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;                                                      // of `backends`
  std::vector<std::vector<c10::intrusive_ptr<c10d::Backend>>> backends;  // by rank and group, null where it is in none
  std::deque<std::atomic<int>> came;                                     // ranks that have begun a round

  explicit Run(Program drawn)
      : program(std::move(drawn)), backends(program.groups.front().size()), came(program.rounds.size()) {
    prepare(program);
  }

  void guarded(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {  // the others must not wait for this rank
      const std::lock_guard lock(mutex);
      for (const auto& of_rank : backends)
        for (const auto& backend : of_rank)
          if (backend != nullptr) backend->abort();
      throw;
    }
  }

  // -1 if the rank is not a member.
  int place(std::size_t group, int rank) const {
    const std::vector<int>& members = program.groups[group];
    const auto at = std::ranges::find(members, rank);
    return at == members.end() ? -1 : static_cast<int>(at - members.begin());
  }

  void connect(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    for (std::size_t group = 0; group < program.groups.size(); ++group) {
      const GroupSetup setup{.name = format("group {}", group),
                             .rank = place(group, rank),
                             .size = static_cast<int>(program.groups[group].size()),
                             .timeout = patience,
                             .interface_address = "127.0.0.1",
                             .local_rank = rank};
      c10::intrusive_ptr<c10d::Backend> backend;
      if (setup.rank >= 0)
        backend = (*plugins[index])->connect(c10::make_intrusive<c10d::PrefixStore>(setup.name, store), setup);
      const std::lock_guard lock(mutex);
      backends[index].push_back(backend);
    }
  }

  void carry_out(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    for (std::size_t round = 0; round < program.rounds.size(); ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(program.late_ms[round][index]));
      ++came[round];
      std::vector<c10::intrusive_ptr<c10d::Work>> works(program.rounds[round].size());
      for (const std::size_t number : program.started[round][index]) {
        DrawnOperation& one = program.rounds[round][number];
        const int own = place(one.group, rank);
        if (own >= 0 && takes_part(one, own)) works[number] = start(*backends[index][one.group], one, own);
      }
      for (const std::size_t number : program.waited[round][index])
        if (works[number] != nullptr) works[number]->wait(kNoTimeout);
      require(program.rounds[round].back().collective != Collective::Barrier ||
                  came[round] == static_cast<int>(program.groups.front().size()),
              "a rank left a barrier before all ranks had entered it");
    }
  }

  void shut_down(int rank) {
    for (const auto& backend : backends[static_cast<std::size_t>(rank)])
      if (backend != nullptr) backend->shutdown();
  }
};

void check(const DrawnOperation& one, const std::vector<int>& members, bool in_rank_order,
           const DrawnOperation* before) {
  const std::string what = text_of(one, members);
  const auto size = static_cast<int>(members.size());
  const auto part = [&](const at::Tensor& whole, int rank) {
    return whole.narrow(0, rank * one.elements, one.elements);
  };
  for (int rank = 0; rank < size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const std::string on = format("{}, rank {}", what, rank);
    const at::Tensor& whole = one.outputs[index].tensor();
    const bool is_placed = one.is_in_place && one.collective == Collective::ReduceScatter;
    const at::Tensor found = is_placed ? part(whole, rank) : whole;
    one.outputs[index].check(on);
    require(same_bytes(one.brought[index], one.inputs[index]), on + " wrote to its input");
    const auto equal = [&](const at::Tensor& wanted, const std::string& rule) {
      require(same_bytes(found, wanted), on + " does not give the bytes that were sent; " + rule);
    };
    std::vector<at::Tensor> to_this;
    for (const at::Tensor& input : one.inputs)
      to_this.push_back(takes_whole(one.collective) ? part(input, rank) : input);
    switch (one.collective) {
      case Collective::AllGather:
        equal(at::cat(one.inputs), "rank r's input lands at [r * n, (r + 1) * n) of the output");
        break;
      case Collective::AllToAll:
        equal(at::cat(to_this), "part p of the input goes to rank p, part p of the output comes from rank p");
        break;
      case Collective::Broadcast:
        equal(one.inputs[static_cast<std::size_t>(one.root)], "all ranks must get the root's bytes");
        break;
      case Collective::Send:
        if (rank == one.to)
          equal(one.inputs[static_cast<std::size_t>(one.root)],
                "the k-th receive from a rank must match that rank's k-th send to this one");
        break;
      case Collective::Reduce:
        if (rank == one.root) check_reduced(found, to_this, one.reduction, in_rank_order, on);
        break;
      case Collective::ReduceScatter:
        check_reduced(found, to_this, one.reduction, in_rank_order, on);
        require(before == nullptr || !in_rank_order || same_bytes(found, part(before->outputs[index].tensor(), rank)),
                on + " gives different bits than all_reduce; sum in rank order in both, or declare EQUIVALENCE "
                     "reassociation");
        break;
      case Collective::AllReduce:
        check_reduced(found, to_this, one.reduction, in_rank_order, on);
        require(same_bytes(found, one.outputs.front().tensor()),
                on + " has different bits than rank 0; replicas that are updated with it would diverge");
        break;
      default:
        break;
    }
  }
}

bool carry_out(Subject& subject, Draws& draws, const Tell& tell) {
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  const int ranks = static_cast<int>(draws.chance(4) ? draws.between(2, 12) : draws.between(2, 4));
  std::string said = "options: " + to_string(options) + "; " + count(ranks, "rank");
  Program program = draw_program(draws, ranks, said);
  tell(said);
  const auto run = std::make_shared<Run>(std::move(program));
  try {
    for (int rank = 0; rank < ranks; ++rank)
      run->plugins.push_back(std::make_unique<fakes::LoadedPlugin<Communicator>>(
          subject.make<Communicator>(options, rank, MeshShape{{Axis::Data, ranks}})));
  } catch (const UserError&) {
    return false;  // it takes other options
  }
  RankThreads threads(ranks);
  threads.run("connect(), or an operation whose peers all take part,", patience, [run](int rank) {
    run->guarded([&] {
      run->connect(rank);
      run->carry_out(rank);
    });
  });
  threads.run("shutdown()", patience, [run](int rank) { run->guarded([&] { run->shut_down(rank); }); });
  const bool in_rank_order = subject.manifest().equivalence.kind == plugins::Equivalence::Kind::Bitwise;
  for (const std::vector<DrawnOperation>& round : run->program.rounds)
    for (std::size_t i = 0; i < round.size(); ++i)
      check(round[i], run->program.groups[round[i].group], in_rank_order, round[i].is_again ? &round[i - 1] : nullptr);
  return true;
}

}  // namespace

void drawn(Subject& subject) {
  require_usable(subject);
  search(subject, "communicator.drawn", 100, carry_out);
}

}  // namespace strata::conformance::communicator_checks
