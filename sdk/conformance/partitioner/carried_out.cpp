#include "conformance/partitioner/carried_out.hpp"

#include <ATen/ops/zeros_like.h>
#include <strata/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "conformance/partitioner/reference.hpp"
#include "conformance/runner/process_facts.hpp"

namespace strata::conformance {

namespace {

using fakes::PartitionGroups;
using fakes::PartitionRank;

std::string number(const at::Tensor& tensor, std::int64_t index) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", tensor.detach().to(at::kDouble).reshape({-1})[index].item<double>());
  return text;
}

// The last rank makes its first prefetch() when it has returned on the others, which must not wait for that.
struct LateRank {
  std::atomic<int> past{0};

  void wait_for(int others) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (past < others && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    require(past >= others,
            "prefetch() on the other ranks waits until the last rank calls it, so communication cannot overlap with "
            "computation");
  }
};

// One rank's calls. Without a reference it is a dry run, which only makes them.
class RankCourse {
 public:
  RankCourse(const PartitionWorld& world, PartitionRank& rank, int own, PartitionReference* reference,
             bool must_release, LateRank* late)
      : world_(world),
        rank_(rank),
        plugin_(rank.partitioner()),
        own_(own),
        reference_(reference),
        must_release_(must_release),
        late_(late),
        resident_(plugin_.lookahead().resident),
        flats_(world.infos.size()) {}

  void run() {
    for (std::size_t i = 0; i < world_.end; ++i) {
      const PartitionCall& call = world_.calls[i];
      try {
        make(call);
      } catch (const Failure&) {
        throw;
      } catch (const EnvironmentError&) {
        throw;  // of another rank that failed, or of a wait that never ends
      } catch (const std::exception& error) {
        throw Failure(to_string(world_, call) + " on rank " + std::to_string(own_) + " throws: " + error.what());
      }
    }
    if (world_.strays && world_.end == world_.calls.size() && !resident_) publish_while_gathered();
  }

 private:
  struct Flat {
    int values = -1;           // published
    int written = -1;          // not yet published
    at::Tensor lent;           // between gradient() and reduce()
    at::Tensor filled;         // what must be in it then
    at::Tensor local;          // this rank's sum so far, while it is not lent
    std::vector<int> numbers;  // the gradients of the update
    bool is_reduced = false;   // the last of them too
    bool is_summed = false;    // and finished: the slices hold the sum
  };

  void make(const PartitionCall& call) {
    FlatParameter& flat = *rank_.flat_parameters()[static_cast<std::size_t>(call.flat)];
    Flat& state = flats_[static_cast<std::size_t>(call.flat)];
    switch (call.act) {
      case Act::Prefetch:
        return prefetch(flat, call.phase);
      case Act::Gather:
        for (int times = world_.strays ? 2 : 1; times > 0 && !resident_; --times) plugin_.gather(flat, call.phase);
        if (world_.strays && !resident_) plugin_.prefetch(flat, call.phase);
        return check_values(flat, call, " after ");
      case Act::Release:
        check_values(flat, call, " before ");
        if (!resident_) plugin_.release(flat, call.phase);
        require(!must_release_ || flat.residence() == Residence::Released,
                "the plugin declares releases_parameters, but " + flat.info().name + " is " +
                    to_string(flat.residence()) + " after release()");
        if (flat.residence() == Residence::Released)
          stray([&] { plugin_.release(flat, call.phase); }, "release() a second time");
        return;
      case Act::Lend:
        return lend(flat, state, call);
      case Act::Reduce:
        return reduce(flat, state, call);
      case Act::Finish:
        plugin_.finish_gradient(flat);
        state.is_summed = state.is_reduced;
        return check_sum(flat, state, call);
      case Act::Write:
        write(flat, call.number);
        state.written = call.number;
        return;
      case Act::Publish:
        plugin_.publish(flat);
        state.values = state.written;
        if (resident_) check_values(flat, call, " after ");
        return;
      case Act::EndStep:
        return end_step(call);
    }
  }

  // Out of order.
  template <class Call>
  void stray(Call&& call, const std::string& what) {
    if (!world_.strays) return;
    try {
      call();
    } catch (const Bug&) {
      return;
    } catch (const std::exception& error) {
      throw Failure(what + " must throw Bug; it threw " + error.what());
    }
    throw Failure(what + " is accepted; it must throw Bug, or the run would compute with wrong values");
  }

  void prefetch(FlatParameter& flat, Phase phase) {
    if (resident_) return;
    LateRank* const late = std::exchange(late_, nullptr);
    const int others = world_.ranks.size() - 1;
    if (late != nullptr && own_ == others) late->wait_for(others);
    for (int times = world_.strays ? 2 : 1; times > 0; --times) plugin_.prefetch(flat, phase);
    if (late != nullptr) ++late->past;
  }

  // New values while the old ones are gathered: refused, or what is gathered next is the new ones.
  void publish_while_gathered() {
    const PartitionCall gathered{Act::Gather, 0, Phase::Forward}, released{Act::Release, 0, Phase::Forward};
    make(gathered);
    make({Act::Write, 0, Phase::Forward, {}, 1'000});
    try {
      make({Act::Publish, 0});
    } catch (const Bug&) {
      return;
    }
    plugin_.release(*rank_.flat_parameters()[0], Phase::Forward);
    make(gathered);
    make(released);
  }

  void check_values(FlatParameter& flat, const PartitionCall& call, const char* when) {
    const FlatParameterInfo& info = flat.info();
    const std::string at = when + to_string(world_, call);
    require(flat.residence() == Residence::Gathered,
            info.name + " is " + to_string(flat.residence()) + at +
                (resident_ ? "; lookahead() says that parameters are resident" : ""));
    if (reference_ == nullptr) return;
    const at::Tensor expected = reference_->values(info.id, flats_[static_cast<std::size_t>(info.id)].values);
    for (std::size_t i = 0; i < info.parameters.size(); ++i) {
      const ParameterSpan& span = info.parameters[i];
      const at::Tensor part = expected.narrow(0, span.offset, span.info.elements());
      const auto wrong = reference_->first_wrong(flat.parameters()[i], part);
      require(!wrong,
              "element " + std::to_string(span.offset + wrong.value_or(0)) + " of " + std::to_string(info.elements) +
                  " of " + info.name + " (" + span.info.name + ") reads " +
                  number(flat.parameters()[i], wrong.value_or(0)) + " on rank " + std::to_string(own_) + at + ", but " +
                  number(part, wrong.value_or(0)) + " was published" +
                  (call.act == Act::Release ? "; it was right after gather(), so other work wrote its memory" : ""));
    }
  }

  void lend(FlatParameter& flat, Flat& state, const PartitionCall& call) {
    const FlatParameterInfo& info = flat.info();
    const LentGradient gradient = plugin_.gradient(flat, call.accumulation);
    state.lent = gradient.values;
    stray([&] { plugin_.gradient(flat, call.accumulation); }, "gradient() before reduce() of the previous one");
    require(state.lent.defined() && state.lent.numel() == info.elements && state.lent.is_contiguous() &&
                state.lent.scalar_type() == info.dtypes.gradient,
            "gradient() of " + info.name + " must return a contiguous buffer of " + std::to_string(info.elements) +
                " elements in the gradient's dtype");
    state.is_reduced = state.is_summed = false;
    if (reference_ == nullptr) return;
    if (call.accumulation.first) {
      state.numbers.clear();
      state.local = at::zeros_like(state.lent);
    }
    state.numbers.push_back(call.number);
    if (gradient.empty) state.lent.zero_();
    const bool is_zero = !reference_->first_wrong(state.lent, at::zeros_like(state.lent));
    require(is_zero || (!call.accumulation.first && !reference_->first_wrong(state.lent, state.local)),
            "gradient() of " + info.name + " on rank " + std::to_string(own_) +
                (call.accumulation.first
                     ? " returns a buffer for an update's first micro-batch that is not zero and not lent as empty; "
                       "backward adds to it"
                     : " returns a buffer that holds neither zeros nor the sum so far; backward adds to it"));
    const at::Tensor own = reference_->gradient(info.id, own_, call.number);
    state.local.add_(own);
    state.lent.add_(own);
    state.filled = is_zero ? own : state.local;
  }

  void reduce(FlatParameter& flat, Flat& state, const PartitionCall& call) {
    if (reference_ != nullptr)
      require(!reference_->first_wrong(state.lent, state.filled),
              "the buffer that gradient() of " + flat.info().name + " returned on rank " + std::to_string(own_) +
                  " is written by something else before its reduce(); it is another's too");
    plugin_.reduce(flat, call.accumulation);
    stray([&] { plugin_.reduce(flat, call.accumulation); }, "reduce() without gradient()");
    state.lent = at::Tensor();
    state.is_reduced = call.accumulation.last;
  }

  void check_sum(const FlatParameter& flat, const Flat& state, const PartitionCall& call) {
    if (reference_ == nullptr || !state.is_summed) return;
    const PartitionReference::Sum& sum = reference_->sum(flat.info().id, state.numbers);
    for (const Slice& slice : rank_.owned()) {
      if (slice.flat != &flat) continue;
      const at::Tensor expected = sum.values.narrow(0, slice.begin, slice.end - slice.begin);
      const auto wrong = reference_->first_wrong(rank_.gradient(slice), expected, sum.allowed);
      require(
          !wrong,
          format("rank {} has {} as the gradient of element {} of {} after {}; the sum over {} and {} is {}", own_,
                 number(rank_.gradient(slice), wrong.value_or(0)), slice.begin + wrong.value_or(0), flat.info().name,
                 to_string(world_, call), count(world_.ranks.size(), "rank"),
                 count(static_cast<int>(state.numbers.size()), "micro-batch"), number(expected, wrong.value_or(0))));
    }
  }

  // As the optimizer: into this rank's slices.
  void write(const FlatParameter& flat, int values) {
    if (reference_ == nullptr) return;
    const at::Tensor all = reference_->values(flat.info().id, values);
    for (const Slice& slice : rank_.owned())
      if (slice.flat == &flat) rank_.parameter(slice).copy_(all.narrow(0, slice.begin, slice.end - slice.begin));
  }

  void end_step(const PartitionCall& call) {
    for (const FlatParameter* flat : rank_.flat_parameters())
      check_sum(*flat, flats_[static_cast<std::size_t>(flat->info().id)], call);
    if (reference_ == nullptr || !world_.steps_alike) return;
    if (call.number == 1) {
      slots_ = rank_.slots().taken();
      ledger_ = rank_.store().ledger();
    }
    if (call.number < 2) return;
    require(rank_.slots().taken() == slots_, "steps after the first two take " +
                                                 std::to_string(rank_.slots().taken() - slots_) +
                                                 " slots more and do not return them");
    require(rank_.store().ledger().now == ledger_.now,
            format("steps after the first two allocate memory: {} bytes are held after step {}, {} after 2",
                   rank_.store().ledger().total(Tier::Device), call.number + 1, ledger_.total(Tier::Device)));
  }

  const PartitionWorld& world_;
  PartitionRank& rank_;
  Partitioner& plugin_;
  int own_;
  PartitionReference* reference_;
  bool must_release_;
  LateRank* late_;  // until the first prefetch()
  bool resident_;
  std::vector<Flat> flats_;
  int slots_ = 0;
  Ledger ledger_;
};

std::string difference(const Ledger& run, const Ledger& dry) {
  for (std::size_t category = 0; category < run.peak.size(); ++category)
    for (std::size_t tier = 0; tier < run.peak[category].size(); ++tier)
      if (run.peak[category][tier] != dry.peak[category][tier])
        return format("a run held up to {} bytes of {} on {}, but its dry run says {}", run.peak[category][tier],
                      to_string(static_cast<Category>(category)), to_string(static_cast<Tier>(tier)),
                      dry.peak[category][tier]);
  return run.total_peak != dry.total_peak ? "the run's total peak differs from its dry run's" : "";
}

std::string difference(const Traffic& run, const Traffic& dry) {
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (run.calls_of(collective) != dry.calls_of(collective) || run.bytes_of(collective) != dry.bytes_of(collective))
      return format("a run made {} calls of {} with {} bytes, but its dry run made {} with {}",
                    run.calls_of(collective), to_string(collective), run.bytes_of(collective), dry.calls_of(collective),
                    dry.bytes_of(collective));
  }
  return "";
}

std::vector<std::tuple<int, std::int64_t, std::int64_t>> owned_by(const PartitionRank& rank) {
  std::vector<std::tuple<int, std::int64_t, std::int64_t>> ranges;
  for (const Slice& slice : rank.owned()) ranges.emplace_back(slice.flat->info().id, slice.begin, slice.end);
  return ranges;
}

// `strata plan` makes the same calls on meta tensors, so its figures must be the run's.
void check_dry_run(Subject& subject, const PartitionWorld& world, PartitionRank& rank, int own) {
  PartitionRank dry(subject.library(), world.options, world.ranks, own, world.infos);
  const std::string who = format("rank {}", own);
  require(owned_by(rank) == owned_by(dry), who + " owns other slices in a run than in a dry run");
  RankCourse(world, dry, own, nullptr, false, nullptr).run();
  const std::string memory = difference(rank.store().ledger(), dry.store().ledger());
  require(memory.empty(), who + ": " + memory);
  const std::string sent = difference(rank.traffic(), dry.traffic());
  require(sent.empty(), who + ": " + sent);
}

// The forms in which a partitioner may hold a trainable parameter's gradient: whole, its part, a lent buffer, one on
// its way. Where there are units it may pad as much as it likes.
void check_frozen(const PartitionWorld& world, PartitionRank& rank) {
  std::int64_t most = 0;
  for (const FlatParameterInfo& info : world.infos) {
    const std::int64_t padded = info.elements + std::int64_t{world.ranks.size()} * 64;
    for (const ParameterSpan& span : info.parameters)
      if (span.unit > 1) return;
    if (info.trainable) most += 4 * (padded * 4 + 512);
  }
  const std::int64_t held =
      rank.store().ledger().peak[static_cast<std::size_t>(Category::Gradient)][static_cast<std::size_t>(Tier::Device)];
  require(held <= most, format("the partitioner held {} bytes of gradients; those of the trainable parameters take at "
                               "most {}, and frozen parameters need none",
                               held, most));
}

}  // namespace

double tolerance_of(Subject& subject, const fakes::OptionTexts& options) {
  const plugins::Equivalence equivalence =
      plugins::equivalence_of(subject.manifest(), subject.library().values(options));
  if (equivalence.kind == plugins::Equivalence::Kind::Simulated)
    throw Skip("the plugin promises the results of " + equivalence.reference + ", which the kit cannot run");
  return equivalence.kind == plugins::Equivalence::Kind::Tolerance ? equivalence.bound : 0.0;
}

void carry_out(Subject& subject, const PartitionWorld& world, double tolerance) {
  PartitionReference reference(world, tolerance);
  const PartitionGroups groups(subject.library(), world.options, world.ranks, world.movement);
  const bool must_release =
      subject.can(Capability::ReleasesParameters) && world.options.empty() && world.ranks.size() > 1;
  LateRank late;
  std::mutex mutex;
  std::exception_ptr first;  // before it ends the others' waits, which then throw too
  const auto fails = [&] {
    {
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
    groups.give_up();
  };
  try {
    fakes::on_ranks(world.ranks.size(), [&](CheckedGroup& all) {
      const int own = all.rank();
      try {
        PartitionRank rank(subject.library(), world.options, groups, own, world.infos);
        try {
          const Facts before = facts_of_this_thread();
          RankCourse(world, rank, own, &reference, must_release, world.strays ? &late : nullptr).run();
          require_same(before, facts_of_this_thread(), "a run");
          check_frozen(world, rank);
          check_dry_run(subject, world, rank, own);
          rank.shutdown();
        } catch (...) {
          fails();  // before this rank's own shutdown, which may wait
          throw;
        }
        const std::string when =
            world.end == world.calls.size() ? "shutdown() leaves " : "shutdown() in the middle of a step leaves ";
        require(rank.slots().taken() == 0, when + count(rank.slots().taken(), "slot") + " taken");
        const int under_way = groups.under_way(own);
        require(under_way == 0,
                format("{}{} collectives pending; wait for them: the memory that they write is freed next", when,
                       under_way));
      } catch (...) {
        fails();
        throw;
      }
    });
  } catch (...) {
    std::rethrow_exception(first);
  }
}

}  // namespace strata::conformance
