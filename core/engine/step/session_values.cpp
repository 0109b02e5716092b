// The values of parameters: filling and publishing them, and what ranks hold when a run begins, each element counted by
// one of them and equal on all that have it.
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include "group/numbers.hpp"
#include "plugins/plugin_call.hpp"
#include "state/digest.hpp"
#include "step/parameter_numbers.hpp"
#include "step/session.hpp"

namespace strata::step {

namespace {

// Counts and digests of one parameter, summed over the run. Digests add up: if every element is held n times, the sum
// is n times the digest of one copy.
struct ParameterTotals {
  std::int64_t counted = 0;         // elements
  std::int64_t counted_places = 0;  // a digest of which ones
  std::int64_t counted_here = 0;    // of them, those whose values were looked at: they rest on the device
  std::int64_t counted_values = 0;
  std::int64_t owned = 0;
  std::int64_t owned_values = 0;
  std::int64_t whole = 0;  // on ranks that keep the parameter gathered
  std::int64_t whole_values = 0;
  std::int64_t first_whole = 0;  // of them, those of the first data-parallel ranks
  std::int64_t first_whole_values = 0;
};
constexpr std::size_t totals_numbers = sizeof(ParameterTotals) / sizeof(std::int64_t);
static_assert(totals_numbers == 10);

// True if `digest` is that of `times` copies of what has the digest `one`.
bool is_multiple(std::int64_t digest, std::int64_t times, std::int64_t one) {
  const auto sum = static_cast<std::uint64_t>(digest), part = static_cast<std::uint64_t>(one);
  return ((sum - static_cast<std::uint64_t>(times) * part) & state::digest_mask) == 0;
}

void check_held(const ParameterTotals& held, const ParameterInfo& parameter, const std::string& partitioner) {
  const std::int64_t elements = parameter.elements();
  const bool each_once =
      static_cast<std::uint64_t>(held.counted_places) % state::places_modulus == state::digest_of_places(0, elements);
  if (held.counted != elements || !each_once)
    throw Bug(
        "{}: the ranks count {} elements of {}, which has {}{}; norms and files need each element once: owned() covers "
        "every element, and Slice::counted_begin and counted_end leave out what another data-parallel rank counts",
        partitioner, held.counted, parameter.name, elements, held.counted == elements ? ", some of them twice" : "");
  if (held.counted_here != elements) return;
  if (held.owned % elements == 0 && !is_multiple(held.owned_values, held.owned / elements, held.counted_values))
    throw Bug(
        "ranks that own the same elements of {} hold different values of them at the start; initial values depend only "
        "on the seed, the name and the place: Model::describe() must say the same in every process, and no plugin may "
        "write to parameters between attach() and publish() ({} holds their buffers)",
        parameter.name, partitioner);
  // Compared with each other and not with the owners' values: a partitioner may send rounded ones.
  if (held.first_whole > 0 && held.whole % held.first_whole == 0 &&
      !is_multiple(held.whole_values, held.whole / held.first_whole, held.first_whole_values))
    throw Bug(
        "{}: after publish() a rank has other values of {} than another rank; publish() gives every rank that keeps a "
        "flat parameter bound the same new values of all its elements",
        partitioner, parameter.name);
}

}  // namespace

void Session::fill(const ValueSource& source) {
  for (state::OptimizerState::Entry& entry : stage_.updates.state().entries()) {
    const PieceInfo& piece = entry.piece.info;
    entry.for_each_run(entry.weights(), 0, piece.end - piece.begin, [&](std::int64_t whole, const BufferRange& part) {
      stage_.values.buffers().with(part, memory::Access::Write, [&](const at::Tensor& values) {
        source(entry.span->info, whole, whole + part.elements, values);
      });
    });
    stage_.updates.state().start_at_weights(entry);
    stage_.updates.state().write_parameter(entry);
  }
  publish();
}

void Session::compute_with(Weights weights) {
  if (weights == weights_ || !stage_.updates.state().evaluates_elsewhere()) return;
  const c10::NoGradGuard no_grad;
  for (const FlatParameter* const flat : stage_.values.flat_parameters()) executor_.finish_publish(flat->info().id);
  state::OptimizerState& state = stage_.updates.state();
  for (const state::OptimizerState::Entry& entry : state.entries())
    if (weights == Weights::Trained)
      state.write_parameter(entry);
    else
      state.write_evaluated(entry);
  publish_values();
  weights_ = weights;
}

// Compares the saved weights where layers train at others: these may differ between ranks, and are set in the first
// step.
void Session::publish() {
  weights_ = Weights::Trained;
  if (stage_.updates.state().trains_elsewhere())
    compute_with(Weights::Evaluated);
  else
    publish_values();
  check_values();
}

void Session::publish_values() {
  std::vector<memory::Buffers::Movement> movements;
  for (const FlatParameter* const flat : stage_.values.flat_parameters())
    for (const bool comes : {true, false}) movements.push_back({{Category::Parameter, flat->info().id}, comes});
  stage_.values.buffers().make_room(movements);
  for (FlatParameter* const flat : stage_.values.flat_parameters()) {
    const program::Moved values{Category::Parameter, flat->info().id};
    stage_.values.buffers().fetch(values, true);
    stage_.values.buffers().await(values);
    plugins::plugin_call(
        stage_.plugins.partitioner.name, [&] { return "publish(" + flat->info().name + ")"; }, stage_.place.rank,
        [&] { stage_.plugins.partitioner->publish(*flat); });
    executor_.finish_publish(flat->info().id);  // one at a time: what is being published may hold memory
    stage_.values.buffers().store(values, false);
  }
}

// Every rank knows every parameter of the model, so only sums are exchanged, in one order.
void Session::check_values() {
  const ParameterNumbers parameters(stage_.layers.model());
  std::vector<ParameterTotals> mine(parameters.names().size());
  const auto add = [](std::int64_t& digest, std::uint64_t more) {
    digest = static_cast<std::int64_t>((static_cast<std::uint64_t>(digest) + more) & state::digest_mask);
  };
  for (FlatParameter* const flat : stage_.values.flat_parameters()) {
    if (flat->residence() != Residence::Gathered || stage_.values.buffers().moves(Category::Parameter, flat->info().id))
      continue;
    const auto call = [&](const char* function, void (Partitioner::*does)(FlatParameter&, Phase)) {
      plugins::plugin_call(
          stage_.plugins.partitioner.name, [&] { return std::string(function) + "(" + flat->info().name + ")"; },
          stage_.place.rank, [&] { (stage_.plugins.partitioner.plugin->*does)(*flat, Phase::Forward); });
    };
    call("gather", &Partitioner::gather);  // waits where publish() only began
    const state::Digest digest(flat->memory());
    for (const ParameterSpan& span : flat->info().parameters) {
      ParameterTotals& held = mine[parameters.of(span.info.name)];
      span.cut().for_each_run(
          span.cut().part_of(span.tensor_rank), 0, span.elements(), [&](const ParameterCut::Run& run) {
            const std::uint64_t found = digest.of(span.offset + run.in_part, run.elements, run.whole);
            held.whole += run.elements;
            add(held.whole_values, found);
            if (data_parallel_rank(mesh(), place()) != 0) return;
            held.first_whole += run.elements;
            add(held.first_whole_values, found);
          });
    }
    call("release", &Partitioner::release);
  }
  for (const state::OptimizerState::Entry& entry : stage_.updates.state().entries()) {
    ParameterTotals& held = mine[parameters.of(entry.span->info.name)];
    const std::int64_t begin = entry.piece.info.begin, elements = entry.piece.info.end - begin;
    const auto each_run = [&](std::int64_t from, std::int64_t to, const auto& visit) {
      entry.span->cut().for_each_run(entry.span->cut().part_of(entry.span->tensor_rank), begin + from, begin + to,
                                     visit);
    };
    each_run(entry.counted_begin, entry.counted_end, [&](const ParameterCut::Run& run) {
      held.counted += run.elements;
      held.counted_places += static_cast<std::int64_t>(state::digest_of_places(run.whole, run.whole + run.elements));
      held.counted_places %= static_cast<std::int64_t>(state::places_modulus);
    });
    if (stage_.values.buffers().moves(Category::Parameter, entry.flat->info().id))
      continue;  // it would be read from its home
    stage_.values.buffers().with(entry.parameter, memory::Access::Read, [&](const at::Tensor& values) {
      const state::Digest digest(values);
      const std::array<std::int64_t, 4> cuts{0, entry.counted_begin, entry.counted_end, elements};
      for (std::size_t part = 0; part < 3; ++part)
        each_run(cuts[part], cuts[part + 1], [&](const ParameterCut::Run& run) {
          const std::uint64_t found = digest.of(run.in_part - begin, run.elements, run.whole);
          held.owned += run.elements;
          add(held.owned_values, found);
          if (part != 1) return;
          held.counted_here += run.elements;
          add(held.counted_values, found);
        });
    });
  }
  std::vector<std::int64_t> numbers(mine.size() * totals_numbers);
  std::memcpy(numbers.data(), mine.data(), numbers.size() * sizeof(std::int64_t));
  numbers = group::reduce_numbers(stage_.groups.world(), stage_.memory.tensors(), numbers);
  std::memcpy(static_cast<void*>(mine.data()), numbers.data(), numbers.size() * sizeof(std::int64_t));
  for (const LayerInfo& layer : stage_.layers.model())
    for (const ParameterInfo& parameter : layer.parameters) {
      const auto tie = stage_.layers.ties().find(parameter.tie);
      if (tie == stage_.layers.ties().end() || tie->second.first_use.name == parameter.name)
        check_held(mine[parameters.of(parameter.name)], parameter, stage_.plugins.partitioner.name);
    }
}

}  // namespace strata::step
