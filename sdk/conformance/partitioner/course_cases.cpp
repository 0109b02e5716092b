// Cases on the course of a run: calls in a wrong order, memory between steps and at the end, and the dry run's figures.
#include <strata/error.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "partitioner/partitioner_cases.hpp"
#include "partitioner/ranks.hpp"

namespace strata::conformance {

namespace {

using fakes::Movement;
using fakes::PartitionRank;

template <class Call>
void require_bug(Call&& call, const std::string& what) {
  try {
    call();
  } catch (const Bug&) {
    return;
  } catch (const std::exception& error) {
    throw Failure(what + " must throw Bug; it threw " + error.what());
  }
  throw Failure(what + " is accepted; it must throw Bug, or the run would compute with wrong values");
}

FlatParameter& trainable_of(PartitionRank& rank) {
  return *rank.flat_parameters()[3];  // 1000 elements
}

void gradients_out_of_order(PartitionRank& rank) {
  Partitioner& partitioner = rank.partitioner();
  FlatParameter& flat = trainable_of(rank);
  const Accumulation whole{true, true};
  require_bug([&] { partitioner.reduce(flat, whole); }, "reduce() without gradient()");
  partitioner.gradient(flat, whole);
  require_bug([&] { partitioner.gradient(flat, whole); }, "gradient() before reduce() of the previous one");
  partitioner.reduce(flat, whole);
  require_bug([&] { partitioner.reduce(flat, whole); }, "reduce() a second time");
  partitioner.finish_gradient(flat);
}

void gathers_out_of_order(PartitionRank& rank, double tolerance) {
  Partitioner& partitioner = rank.partitioner();
  FlatParameter& flat = trainable_of(rank);
  if (flat.residence() != Residence::Released) return;  // one whose parameters stay: release() says nothing
  require_bug([&] { partitioner.release(flat, Phase::Forward); }, "release() without gather()");
  partitioner.gather(flat, Phase::Forward);
  partitioner.gather(flat, Phase::Forward);  // "may be called for one that is already here"
  partitioner.prefetch(flat, Phase::Forward);
  partitioner.release(flat, Phase::Forward);
  require(flat.residence() == Residence::Released, "after two calls of gather() and one of release(), " +
                                                       flat.info().name + " is " + to_string(flat.residence()) +
                                                       "; one release() must release it");
  require_bug([&] { partitioner.release(flat, Phase::Forward); }, "release() a second time");
  require_values(rank, flat, 1.0, Phase::Forward, tolerance);
}

// New values while the old ones are gathered: refused, or what is gathered next is the new ones.
void publishes_out_of_order(PartitionRank& rank, double tolerance) {
  FlatParameter& flat = trainable_of(rank);
  if (flat.residence() != Residence::Released) return;
  rank.partitioner().gather(flat, Phase::Forward);
  for (const Slice& slice : rank.owned())
    if (slice.flat == &flat)
      rank.parameter(slice).copy_(parameter_values(flat.info().id, 31.0, slice.begin, slice.end));
  try {
    rank.partitioner().publish(flat);
  } catch (const Bug&) {
    return;
  }
  require_values(rank, flat, 31.0, Phase::Backward, tolerance);
}

void wrong_order_throws(Subject& subject) {
  for_each_layout(subject, {1, 2, 3}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int) {
      publish_values(rank, 1.0);
      gradients_out_of_order(rank);
      gathers_out_of_order(rank, tolerance);
      publishes_out_of_order(rank, tolerance);
    });
  });
}

// A gate that one rank opens and others wait at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  bool wait_for(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

// The last rank is late: prefetch() on the others must return without it.
void prefetch_does_not_block(Subject& subject) {
  for_each_layout(subject, {2, 3}, [&](const Layout& layout) {
    const double tolerance = tolerance_of(subject, layout.options);
    Gate all_past;
    std::atomic<int> past{0};
    on_ranks_of(subject, layout, parameters_of_all_kinds(), [&](PartitionRank& rank, int own) {
      publish_values(rank, 1.0);
      for (FlatParameter* flat : rank.flat_parameters()) require_values(rank, *flat, 1.0, Phase::Forward, tolerance);
      const bool is_late = own == layout.ranks - 1;
      if (is_late)
        require(all_past.wait_for(std::chrono::seconds(3)),
                "prefetch() on the other ranks waits until this rank calls it, so "
                "communication cannot overlap with computation");
      rank.partitioner().prefetch(trainable_of(rank), Phase::Forward);
      rank.partitioner().prefetch(trainable_of(rank), Phase::Forward);  // it may be on its way already
      if (!is_late && ++past == layout.ranks - 1) all_past.open();
      require_values(rank, trainable_of(rank), 1.0, Phase::Forward, tolerance);
    });
  });
}

void step(PartitionRank& rank, int micro_batches) {
  fakes::run_step(rank, micro_batches, [](FlatParameter&, const at::Tensor&, int) {});
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
}

void slots_come_back(Subject& subject) {
  for_each_layout(subject, {1, 2, 3}, [&](const Layout& layout) {
    on_ranks_of(subject, layout, parameters_of_all_kinds(some_dtypes()[3]), [&](PartitionRank& rank, int) {
      for (int i = 0; i < 2; ++i) step(rank, 2);
      const int taken = rank.slots().taken();
      const Ledger before = rank.store().ledger();
      for (int i = 0; i < 3; ++i) step(rank, 2);
      require(rank.slots().taken() == taken, "3 more steps took " + std::to_string(rank.slots().taken() - taken) +
                                                 " slots and did not "
                                                 "return them");
      require(
          rank.store().ledger().now == before.now,
          "steps after the first two allocate memory: " + std::to_string(rank.store().ledger().total(Tier::Device)) +
              " bytes are held after 5 steps, " + std::to_string(before.total(Tier::Device)) + " after 2");
      rank.shutdown();
      require(rank.slots().taken() == 0,
              std::to_string(rank.slots().taken()) + " slots are still taken after shutdown(); it must return all");
    });
  });
}

// A run may end at any point: before the first step, during a prefetch, a lent gradient, a reduction or a publish.
void shutdown_gives_back(Subject& subject) {
  for_each_layout(subject, {1, 2, 3}, [&](const Layout& layout) {
    for (int end = 0; end < 5; ++end) {
      const fakes::PartitionGroups groups(subject.library(), layout.options, layout.ranks, Movement::AtWait);
      const fakes::PluginLibrary& library = subject.library();
      fakes::on_ranks(layout.ranks, [&](CheckedGroup& world) {
        try {
          PartitionRank rank(library, layout.options, groups, world.rank(), parameters_of_all_kinds());
          Partitioner& partitioner = rank.partitioner();
          if (end > 0) publish_values(rank, 1.0);
          if (end == 1) partitioner.prefetch(trainable_of(rank), Phase::Forward);
          if (end == 2) partitioner.gradient(trainable_of(rank), {true, true});
          if (end == 3) {
            for (FlatParameter* flat : rank.flat_parameters()) {
              if (!flat->info().trainable) continue;
              partitioner.gradient(*flat, {true, true});
              partitioner.reduce(*flat, {true, true});
            }
          }
          rank.shutdown();
          static const char* const ends[] = {"right after attach()", "during a prefetch",
                                             "between gradient() and reduce()", "during reductions", "after publish()"};
          const std::string when = std::string("shutdown() ") + ends[end] + " leaves ";
          require(rank.slots().taken() == 0, when + std::to_string(rank.slots().taken()) + " slots taken");
          const int under_way = groups.under_way(world.rank());
          require(under_way == 0, when + std::to_string(under_way) +
                                      " collectives pending; wait for them: the memory that they "
                                      "write is freed next");
        } catch (...) {
          groups.give_up();
          throw;
        }
      });
    }
  });
}

std::string difference(const Ledger& run, const Ledger& dry) {
  for (int category = 0; category < category_count; ++category) {
    for (int tier = 0; tier < tier_count; ++tier) {
      const std::int64_t held = run.peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
      const std::int64_t planned = dry.peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
      if (held != planned)
        return "a run held up to " + std::to_string(held) + " bytes of " + to_string(static_cast<Category>(category)) +
               " on " + to_string(static_cast<Tier>(tier)) + ", but its dry run says " + std::to_string(planned);
    }
  }
  if (run.total_peak != dry.total_peak) return "the run's total peak differs from its dry run's";
  return "";
}

std::string difference(const Traffic& run, const Traffic& dry) {
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (run.calls_of(collective) != dry.calls_of(collective) || run.bytes_of(collective) != dry.bytes_of(collective))
      return "a run made " + std::to_string(run.calls_of(collective)) + " calls of " + to_string(collective) +
             " with " + std::to_string(run.bytes_of(collective)) + " bytes, but its dry run made " +
             std::to_string(dry.calls_of(collective)) + " with " + std::to_string(dry.bytes_of(collective));
  }
  return "";
}

// `strata plan` makes the same calls on meta tensors, so its figures must be the run's.
void dry_run_counts_the_same(Subject& subject) {
  for_each_layout(subject, {1, 2, 3, 4}, [&](const Layout& layout) {
    const std::vector<FlatParameterInfo> infos = parameters_of_all_kinds(some_dtypes()[1]);
    const auto course = [](PartitionRank& rank) {
      for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
      for (const int micro_batches : {2, 1}) step(rank, micro_batches);
    };
    on_ranks_of(subject, layout, infos, [&](PartitionRank& rank, int own) {
      course(rank);
      PartitionRank dry(subject.library(), layout.options, layout.ranks, own, infos);
      course(dry);
      const std::string memory = difference(rank.store().ledger(), dry.store().ledger());
      require(memory.empty(), "rank " + std::to_string(own) + ": " + memory);
      const std::string sent = difference(rank.traffic(), dry.traffic());
      require(sent.empty(), "rank " + std::to_string(own) + ": " + sent);
      const auto ranges = [](const PartitionRank& one) {
        std::vector<std::pair<std::int64_t, std::int64_t>> all;
        for (const Slice& slice : one.owned()) all.emplace_back(slice.begin, slice.end);
        return all;
      };
      require(ranges(rank) == ranges(dry),
              "rank " + std::to_string(own) + " owns other slices in a run than in a dry run");
    });
  });
}

}  // namespace

std::vector<Case> course_cases() {
  return {
      {"partitioner.order", "Calls in an invalid order throw Bug; gathering twice is allowed.", wrong_order_throws},
      {"partitioner.prefetch",
       "prefetch() does not wait for other ranks, and can be repeated for gathered or pending parameters.",
       prefetch_does_not_block},
      {"partitioner.slots", "Steps after the first two allocate nothing, and all slots are returned.", slots_come_back},
      {"partitioner.shutdown", "Wherever a run ends, shutdown() waits for pending collectives and returns all slots.",
       shutdown_gives_back},
      {"partitioner.bytes", "A run allocates and sends exactly what its dry run predicts, call by call.",
       dry_run_counts_the_same},
  };
}

}  // namespace strata::conformance
