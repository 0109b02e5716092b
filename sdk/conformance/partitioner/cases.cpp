// Cases that no drawn run shows: calls in a wrong order, and a prefetch() that waits.
#include <strata/error.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "drawn/search.hpp"
#include "partitioner/carried_out.hpp"
#include "partitioner/ranks.hpp"

namespace strata::conformance {

namespace {

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
  write_values(rank, 31.0);
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
    on_ranks_of(subject, layout, fakes::odd_flat_parameters(), [&](PartitionRank& rank, int) {
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
    on_ranks_of(subject, layout, fakes::odd_flat_parameters(), [&](PartitionRank& rank, int own) {
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

constexpr int drawn_runs = 300;

void drawn_runs_are_right(Subject& subject) {
  tolerance_of(subject, {});  // throws Skip
  search(subject, "partitioner.drawn", drawn_runs, [&](Subject& of, Draws& draws, const Tell& tell) {
    PartitionWorld world = draw_partition(draws, of.manifest().options);
    tell(to_string(world));
    try {
      const fakes::PartitionGroups groups(of.library(), world.options, world.ranks);
    } catch (const UserError&) {
      return false;  // it takes other settings or numbers of ranks
    }
    const Lookahead lookahead = check_layout(of, world);
    draw_course(draws, lookahead, world);
    tell(to_string(world));
    carry_out(of, world, tolerance_of(of, world.options));
    return true;
  });
}

}  // namespace

std::vector<Case> partitioner_cases() {
  return {
      {"partitioner.drawn",
       "In every drawn run gathered values are the published ones, slices hold the sums over ranks and micro-batches, "
       "and memory and bytes sent are those of the dry run.",
       drawn_runs_are_right, std::chrono::seconds(300), true},
      {"partitioner.order", "Calls in an invalid order throw Bug; gathering twice is allowed.", wrong_order_throws},
      {"partitioner.prefetch",
       "prefetch() does not wait for other ranks, and can be repeated for gathered or pending parameters.",
       prefetch_does_not_block},
  };
}

}  // namespace strata::conformance
