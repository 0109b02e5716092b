// Buffers that move between memory tiers while the step computes.
#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

namespace {

Program lowered(LayerOptions layers, std::int64_t read_ahead) {
  const int count = static_cast<int>(layers.recompute.size());
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 2}, costs_of(count));
  layers.read_ahead = read_ahead;
  return lower_training(plan, layers, {.layers = 1, .elements = 100, .reuse_distance = 0, .live_parameters = 100}, 0);
}

LayerOptions moving(int count, std::int64_t bytes) {
  LayerOptions layers = plain_layers(count);
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
    parameter.values_leave = parameter.gradient_leaves = bytes > 0;
    parameter.parameter_moves = parameter.gradient_moves = parameter.state_moves = parameter.kept_moves = bytes;
  }
  return layers;
}

Program without(Program program, const std::vector<Op>& ops) {
  std::erase_if(program, [&](const Instruction& one) { return std::ranges::find(ops, one.op) != ops.end(); });
  return program;
}

Program only(Program program, Op op) {
  std::erase_if(program, [&](const Instruction& one) { return one.op != op; });
  return program;
}

std::tuple<Category, bool, int> buffer_of(const Instruction& one) {
  return {one.category, one.kept(), one.flat_parameter};
}

// The most bytes that are between their Fetch and their Await, or between their Store and their Settle.
std::int64_t most_under_way(const Program& program, const ParameterUse& use) {
  std::int64_t now = 0, most = 0;
  for (const Instruction& one : program) {
    if (!is_movement(one.op)) continue;
    const std::int64_t bytes = use.moved_bytes(one);
    if (one.op == Op::Fetch || (one.op == Op::Store && one.changed)) now += bytes;
    if (one.op == Op::Await || one.op == Op::Settle) now -= bytes;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

TEST_CASE("an update hides the next parameter's fetch and the previous one's store") {
  const std::vector<std::string> lines = to_text(lowered(moving(3, 8), 24));
  const auto norm = std::ranges::find(lines, "Norm");
  REQUIRE(norm != lines.end());
  const std::vector<std::string> of_update(std::ranges::find(norm, lines.end(), "Update parameter 0 round 0"),
                                           std::ranges::find(norm, lines.end(), "Update parameter 1 round 0"));
  // Under way with it: what the update of 1 needs. It is awaited only where it is used.
  CHECK(of_update ==
        std::vector<std::string>{"Update parameter 0 round 0", "Publish parameter 0", "Store parameter 0 gradient",
                                 "Store parameter 0 optimizer changed", "Store parameter 0 parameter changed",
                                 "Await parameter 1 gradient", "Await parameter 1 optimizer",
                                 "Fetch parameter 2 optimizer with contents", "Await parameter 1 parameter",
                                 "Fetch parameter 2 parameter with contents"});
}

TEST_CASE("moving ahead keeps the computation, the order of movements and its bound") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    LayerOptions layers = moving(2 + static_cast<int>(random() % 5), 0);
    layers.policy = random() % 2 == 0 ? config::StepPolicy::Plain : config::StepPolicy::Delayed;
    layers.sums_of_round = {random() % 2 == 0, random() % 2 == 0};
    std::int64_t largest = 0;
    for (std::size_t layer = 0; layer < layers.recompute.size(); ++layer) {
      layers.recompute[layer] = random() % 2 == 0;
      layers.parameters.input_moves.push_back(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(1 + random() % 50));
      largest = std::max(largest, layers.parameters.input_moves.back());
    }
    const bool at_home = random() % 4 == 0;
    for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
      for (std::int64_t* bytes :
           {&parameter.parameter_moves, &parameter.gradient_moves, &parameter.state_moves, &parameter.kept_moves}) {
        *bytes = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(1 + random() % 50);
        largest = std::max(largest, *bytes);
      }
      parameter.values_leave = parameter.parameter_moves > 0;
      parameter.gradient_leaves = parameter.gradient_moves > 0;
      parameter.updates_at_home = at_home;
      if (at_home) parameter.state_moves = parameter.kept_moves = 0;
      if (parameter.state_moves > 0 && random() % 2 == 0) parameter.update_parts = 1 + static_cast<int>(random() % 4);
    }
    const auto read_ahead = static_cast<std::int64_t>(random() % 200);
    CAPTURE(trial, read_ahead);
    const Program before = lowered(layers, 0), after = lowered(layers, read_ahead);
    const std::vector<Op> moved{Op::Fetch, Op::Settle};
    CHECK(without(after, moved) == without(before, moved));
    const auto fetched = [](const Program& program, bool contents) {
      Program fetches = only(program, Op::Fetch);
      std::erase_if(fetches, [&](const Instruction& one) { return one.contents != contents; });
      return fetches;
    };
    for (const bool contents : {false, true}) CHECK(fetched(after, contents) == fetched(before, contents));
    CHECK(only(after, Op::Settle).size() == only(before, Op::Settle).size());
    // Besides one that does not come ahead, or one that has just begun to go.
    CHECK(most_under_way(after, layers.parameters) <= 2 * read_ahead + largest);
  }
}

TEST_CASE("in a phase of only writes or only reads, the idle direction's room is used") {
  LayerOptions layers = moving(8, 0);
  layers.defers_updates = true;
  layers.updates_at_end = 0.5;
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) parameter.state_moves = 8;
  const Program program = lowered(layers, 16);
  const auto first = [&](Op op) { return std::ranges::find(program, op, &Instruction::op); };
  const auto count = [](auto begin, auto end, Op op) { return std::ranges::count(begin, end, op, &Instruction::op); };
  // The state of four layers comes and goes in the forward, that of the others at the end: 32 bytes each.
  CHECK(count(program.begin(), first(Op::Forward), Op::Fetch) == 4);
  CHECK(count(program.begin(), first(Op::Backward), Op::Store) == 4);
  CHECK(count(program.begin(), first(Op::Backward), Op::Settle) == 0);
  CHECK(count(first(Op::Backward), first(Op::Norm), Op::Settle) == 4);
  CHECK(count(first(Op::Backward), first(Op::Norm), Op::Fetch) == 4);
  CHECK(count(first(Op::Norm), program.end(), Op::Fetch) == 0);
}

TEST_CASE("fetches due soon have half of the room: writes end for them") {
  LayerOptions layers = moving(8, 0);
  layers.defers_updates = true;
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) parameter.state_moves = 8;
  const Program program = lowered(layers, 16);
  std::vector<int> fetched;  // by updates before them
  int updates = 0;
  for (const Instruction& one : program) {
    if (one.op == Op::Update) ++updates;
    if (one.op == Op::Fetch) fetched.push_back(updates);
  }
  CHECK(fetched == std::vector<int>{0, 0, 0, 0, 0, 3, 4, 5});
}

TEST_CASE("buffers for offloaded inputs equal a layer's micro-batches in flight") {
  constexpr int layers = 4, micro_batches = 8;
  const auto most = [](const std::string& scheduler, int stages, int stage) {
    LayerOptions options = plain_layers(layers, true);
    options.parameters.input_moves = {0, 8, 8, 8};
    const int chunks = scheduler == "l2l" ? layers / stages : 1;
    const StepPlan plan = plan_step("scheduler/" + scheduler, *make_scheduler(scheduler),
                                    {stages, chunks, micro_batches}, costs_of(layers));
    std::map<int, int> buffers;
    for (const Instruction& one : lower_training(plan, options, {.resident = true}, stage))
      if (one.op == Op::Forward && one.input_buffer >= 0)
        buffers[one.layer] = std::max(buffers[one.layer], one.input_buffer + 1);
    return buffers;
  };
  using Counts = std::map<int, int>;
  CHECK(most("l2l", 1, 0) == Counts{{1, 8}, {2, 8}, {3, 8}});
  CHECK(most("1f1b", 2, 0) == Counts{{1, 2}});
  CHECK(most("1f1b", 2, 1) == Counts{{2, 1}});  // the last layer's backward follows its forward: it is not recomputed
  CHECK(most("gpipe", 2, 0) == Counts{{1, 8}});
}

TEST_CASE("l2l reads parameters twice a step, other orders twice per micro-batch") {
  constexpr int layers = 6;
  const auto reads = [](const std::string& scheduler, int micro_batches, Category category) {
    LayerOptions options = moving(layers, 8);
    options.read_ahead = 16;
    const StepPlan plan = plan_step("scheduler/" + scheduler, *make_scheduler(scheduler),
                                    {1, scheduler == "l2l" ? layers : 1, micro_batches}, costs_of(layers));
    std::int64_t bytes = 0;
    for (const Instruction& one : lower_training(plan, options, {.live_parameters = 100}, 0)) {
      if (one.op == Op::Norm) break;  // the update reads them once more
      if (one.op == Op::Fetch && one.contents && one.category == category)
        bytes += options.parameters.flat_parameter(one.flat_parameter).moves(category);
    }
    return bytes;
  };
  for (const int micro_batches : {1, 2, 4, 8}) {
    CAPTURE(micro_batches);
    // The last layer's backward follows its forward, and a micro-batch's first forward the backward of the one before.
    CHECK(reads("l2l", micro_batches, Category::Parameter) == 8 * (2 * layers - 1));
    CHECK(reads("sequential", micro_batches, Category::Parameter) == 8 * ((2 * layers - 2) * micro_batches + 1));
    CHECK(reads("l2l", micro_batches, Category::Gradient) == 0);  // they are summed where they are
    CHECK(reads("sequential", micro_batches, Category::Gradient) == 8 * layers * (micro_batches - 1));
  }
}

TEST_CASE("without a bound, a fetch starts once its buffer is home, in order") {
  const LayerOptions layers = moving(4, 8);
  const Program program = lowered(layers, 1 << 20);
  for (std::size_t at = 1; at < program.size(); ++at) {
    const Instruction& fetch = program[at];
    if (fetch.op != Op::Fetch || !fetch.contents) continue;
    // Right behind another Fetch, or what has let it go: a Store or Settle of its buffer.
    const Instruction& last = program[at - 1];
    const bool let_go = (last.op == Op::Store || last.op == Op::Settle) && buffer_of(last) == buffer_of(fetch);
    CAPTURE(at, to_string(last), to_string(fetch));
    CHECK((let_go || last.op == Op::Fetch));
  }
}
