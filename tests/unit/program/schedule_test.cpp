// The two schedulers over a grid of shapes, and the communication pass over random schedules.
#include <strata/error.hpp>

#include <algorithm>
#include <random>
#include <set>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "program/validate_schedule.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::runtime;

namespace {

// Passes 1 and 2 for all stages; throws when they could deadlock.
std::vector<Program> communicate(const ComputeOrders& orders, const Placement& placement) {
  const auto chunks = static_cast<int>(placement.stage_of_chunk.size());
  const Timeline timeline = simulate(orders, placement, uniform_costs(chunks, {}));
  const std::vector<bool> plain(static_cast<std::size_t>(placement.layers_of_chunk.back().second), false);
  std::vector<Program> programs;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    programs.push_back(add_communication(expand_layers(orders[stage], placement, plain), static_cast<int>(stage),
                                         timeline, placement));
  }
  validate_communication(programs, placement);
  return programs;
}

// How many transfers a stage takes part in: two per micro-batch for each neighbouring chunk on another stage.
int transfers_of(int stage, const Placement& placement, int micro_batches) {
  int links = 0;
  for (std::size_t chunk = 0; chunk + 1 < placement.stage_of_chunk.size(); ++chunk) {
    const int from = placement.stage_of_chunk[chunk];
    const int to = placement.stage_of_chunk[chunk + 1];
    if (from != to && (from == stage || to == stage)) ++links;
  }
  return 2 * links * micro_batches;
}

}  // namespace

TEST_CASE("both schedulers over stages 1..8 and micro-batches 1..16") {
  const auto overlapped = make_scheduler("1f1b");
  const auto sequential = make_scheduler("sequential");
  const std::vector<ChunkCost> costs = {{1, 1, 1, 0}, {3, 2, 5, 0}, {2, 1, 0, 0}, {1, 0, 1, 0}};
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      INFO("stages " << p << ", micro-batches " << m);
      const PipelineShape shape{p, 1, m};
      const auto layers = costs_of(p + (p * m) % 4);
      const StepPlan plan = plan_step("scheduler/1f1b", *overlapped, shape, layers);
      const StepPlan reference = plan_step("scheduler/sequential", *sequential, shape, layers);
      for (const ChunkCost& cost : costs) {
        const std::int64_t pair = cost.forward + cost.of(ComputeKind::Backward);
        const Timeline timeline = simulate(plan.orders, plan.placement, uniform_costs(p, cost));
        CHECK(timeline.makespan == (m + p - 1) * pair);  // each stage is idle for (p - 1)(F + B)
        CHECK(timeline.bubble() == Approx((p - 1.0) / (m + p - 1.0)));
        for (int r = 0; r < p; ++r) CHECK(timeline.peak_live[static_cast<std::size_t>(r)] == std::min(p - r, m));
        const Timeline slow = simulate(reference.orders, reference.placement, uniform_costs(p, cost));
        CHECK(slow.makespan == m * p * pair);
        CHECK(slow.peak_live == std::vector<int>(static_cast<std::size_t>(p), 1));
      }
      for (const StepPlan& one : {plan, reference}) {
        const auto programs = communicate(one.orders, one.placement);
        for (int stage = 0; stage < p; ++stage) {
          const Program& program = programs[static_cast<std::size_t>(stage)];
          const auto found =
              std::count_if(program.begin(), program.end(), [](const Instruction& i) { return !is_compute(i.op); });
          CHECK(found == transfers_of(stage, one.placement, m));
        }
      }
    }
  }
}

TEST_CASE("lower_training gives a checked program for every stage") {
  const auto made = make_scheduler("1f1b");
  const Scheduler& scheduler = *made;
  for (const int p : {1, 2, 3, 5}) {
    for (const int m : {1, 2, 7}) {
      const StepPlan plan = plan_step("scheduler/1f1b", scheduler, {p, 1, m}, costs_of(7));
      for (int stage = 0; stage < p; ++stage) {
        const Program program = lower_training(plan, plain_layers(7), {2, 20, 0, 40}, stage);
        CHECK(program.back().op == Op::Publish);
        for (std::size_t i = 0; i < program.size(); ++i) {  // nothing delays what another stage waits for
          if (is_send(program[i].op)) CHECK(is_compute(program[i - 1].op));
        }
        for (const int some : {m, (m + 1) / 2, 1}) {
          int forwards = 0;
          for (const Instruction& one : lower_evaluation(plan, plain_layers(7, true), {1, 100, 0, 100}, stage, some)) {
            forwards += one.op == Op::Forward &&
                        one.layer == plan.placement.layers_of_chunk[static_cast<std::size_t>(stage)].first;
            CHECK_FALSE(computes_backward(one.op));
            CHECK_FALSE(one.recompute);
            CHECK(one.op != Op::SendGradient);
            CHECK(one.op != Op::Update);
          }
          CHECK(forwards == some);
        }
        CHECK_THROWS_AS(lower_evaluation(plan, plain_layers(7), {1, 100, 0, 100}, stage, m + 1), Bug);
      }
    }
  }
}

TEST_CASE("the whole program of one stage, read line by line") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 2}, costs_of(2));
  Lookahead none;
  none.reuse_distance = 100;  // one layer on this stage: nothing else needs the room
  none.live_parameters = 100;
  LayerOptions layers = plain_layers(2);
  layers.sums_of_round = {true, false};
  layers.replicated = {0};
  layers.recompute[0] = true;
  CHECK(to_text(lower_training(plan, layers, none, 0)) ==
        std::vector<std::string>{"Gather parameter 0 for forward",
                                 "Forward 0.0 layer 0 keeping its input",
                                 "SendActivation 0.0 to stage 1",
                                 "Forward 0.1 layer 0 keeping its input",
                                 "SendActivation 0.1 to stage 1",
                                 "ReceiveGradient 0.0 from stage 1",
                                 "BorrowGradient parameter 0 micro-batch 0 first",
                                 "Backward 0.0 layer 0 with recompute",
                                 "Reduce parameter 0 micro-batch 0 first",
                                 "ReceiveGradient 0.1 from stage 1",
                                 "BorrowGradient parameter 0 micro-batch 1 last",
                                 "Backward 0.1 layer 0 with recompute",
                                 "Reduce parameter 0 micro-batch 1 last",
                                 "Release parameter 0 for recompute",
                                 "FinishGradient parameter 0",
                                 "SumReplicas parameter 0",
                                 "SquareGradient parameter 0",
                                 "Norm",
                                 "Measure parameter 0 round 0",
                                 "SumStatistics round 0",
                                 "Update parameter 0 round 0",
                                 "Update parameter 0 round 1",
                                 "Publish parameter 0"});
}

TEST_CASE("a layer whose backward follows its forward at once is not computed twice") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 2}, costs_of(4));
  const auto recomputed = [&](int stage) {
    std::vector<std::string> text;
    for (const Instruction& instruction : lower_training(plan, plain_layers(4, true), {}, stage))
      if (instruction.recompute) text.push_back(to_string(instruction));
    return text;
  };
  CHECK(recomputed(1) ==
        std::vector<std::string>{"Forward 1.0 layer 2 keeping its input", "Backward 1.0 layer 2 with recompute",
                                 "Forward 1.1 layer 2 keeping its input", "Backward 1.1 layer 2 with recompute"});
}

TEST_CASE("any schedule that can run gets communication that cannot deadlock") {
  std::mt19937 random(11);
  const auto below = [&](std::size_t bound) { return static_cast<int>(random() % bound); };
  for (int round = 0; round < 400; ++round) {
    const int stages = 1 + below(5);
    const int per_stage = 1 + below(3);
    const PipelineShape shape{stages, per_stage, 1 + below(5)};
    Placement placement;
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
      placement.stage_of_chunk.push_back(chunk % stages);
      placement.layers_of_chunk.emplace_back(2 * chunk, 2 * chunk + 2);
    }
    std::shuffle(placement.stage_of_chunk.begin(), placement.stage_of_chunk.end(), random);
    // Appends random actions of those whose needs are met, until none is left.
    ComputeOrders orders(static_cast<std::size_t>(stages));
    std::set<std::string> computed;
    std::vector<ComputeAction> left;
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
        left.push_back({ComputeKind::Forward, chunk, micro_batch});
        if (below(2) == 0) {
          left.push_back({ComputeKind::Backward, chunk, micro_batch});
        } else {
          left.push_back({ComputeKind::BackwardInput, chunk, micro_batch});
          left.push_back({ComputeKind::BackwardWeight, chunk, micro_batch});
        }
      }
    }
    const auto done = [&](ComputeKind kind, int chunk, int micro_batch) {
      return computed.contains(to_string(ComputeAction{kind, chunk, micro_batch}));
    };
    const auto ready = [&](const ComputeAction& a) {
      if (a.kind == ComputeKind::Forward) return a.chunk == 0 || done(a.kind, a.chunk - 1, a.micro_batch);
      if (a.kind == ComputeKind::BackwardWeight) return done(ComputeKind::BackwardInput, a.chunk, a.micro_batch);
      const bool gradient = a.chunk == shape.chunks() - 1 || done(ComputeKind::Backward, a.chunk + 1, a.micro_batch) ||
                            done(ComputeKind::BackwardInput, a.chunk + 1, a.micro_batch);
      return gradient && done(ComputeKind::Forward, a.chunk, a.micro_batch);
    };
    while (!left.empty()) {
      const auto chosen = left.begin() + below(left.size());
      if (!ready(*chosen)) continue;
      orders[static_cast<std::size_t>(placement.stage_of_chunk[static_cast<std::size_t>(chosen->chunk)])].push_back(
          *chosen);
      computed.insert(to_string(*chosen));
      left.erase(chosen);
    }
    INFO("round " << round);
    REQUIRE_NOTHROW(validate_orders("random", orders, placement, shape));
    const auto programs = communicate(orders, placement);
    for (int stage = 0; stage < stages; ++stage) {
      const Program& program = programs[static_cast<std::size_t>(stage)];
      const auto found =
          std::count_if(program.begin(), program.end(), [](const Instruction& i) { return !is_compute(i.op); });
      REQUIRE(found == transfers_of(stage, placement, shape.micro_batches));
    }
  }
}

TEST_CASE("what a shape or a model cannot do is refused in a sentence") {
  const auto made = make_scheduler("1f1b");
  const Scheduler& scheduler = *made;
  CHECK_THROWS_WITH(plan_step("scheduler/1f1b", scheduler, {4, 1, 2}, costs_of(3)),
                    Catch::Contains("3 layers") && Catch::Contains("4 chunks"));
  CHECK_THROWS_WITH(plan_step("scheduler/1f1b", scheduler, {2, 2, 2}, costs_of(8)),
                    Catch::Contains("one chunk per stage"));
  CHECK_THROWS_AS(scheduler.order({2, 2, 2}, 0), UserError);
  CHECK_THROWS_WITH(plan_step("scheduler/1f1b", scheduler, {0, 1, 2}, costs_of(8)),
                    Catch::Contains("at least 1 stage"));
  CHECK_THROWS_AS(plan_step("scheduler/1f1b", scheduler, {1, 1, 0}, costs_of(8)), UserError);
  CHECK_THROWS_AS(plan_step("scheduler/1f1b", scheduler, {1, 1, 1}, {}), UserError);
}

TEST_CASE("the simulator knows that data needs time to travel") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 1}, costs_of(2));
  // F, travel, F, B, travel, B.
  CHECK(simulate(plan.orders, plan.placement, uniform_costs(2, {3, 2, 2, 5})).makespan == 3 + 5 + 3 + 4 + 5 + 4);
  const StepPlan sequential = plan_step("scheduler/sequential", *make_scheduler("sequential"), {2, 3, 2}, costs_of(6));
  CHECK(simulate(sequential.orders, sequential.placement, uniform_costs(6, {1, 1, 1, 0})).makespan == 2 * 6 * 3);
  CHECK(simulate(sequential.orders, sequential.placement, uniform_costs(6, {1, 1, 1, 0})).peak_live ==
        std::vector<int>{3, 3});
}

TEST_CASE("a weight's gradient keeps activations alive until it is computed") {
  const ComputeOrders orders = {parse_compute_order("F0.0 F0.1 I0.0 F0.2 I0.1 W0.0 W0.1 I0.2 W0.2")};
  const Timeline timeline = simulate(orders, {{0}, {{0, 1}}}, uniform_costs(1, {}));
  REQUIRE(timeline.complete());
  CHECK(timeline.peak_live == std::vector<int>{3});
  CHECK(timeline.makespan == 9);
}

// The idle time of one stage, from the first start anywhere to the last end.
std::int64_t idle_of(const std::string& name, const PipelineShape& shape, const ChunkCost& cost) {
  const StepPlan plan = plan_step("scheduler/" + name, *make_scheduler(name), shape, costs_of(3 * shape.chunks()));
  const Timeline timeline = simulate(plan.orders, plan.placement, uniform_costs(shape.chunks(), cost));
  return timeline.makespan - timeline.busy.front();
}

TEST_CASE("interleaving divides the idle time by the chunks, and zero bubble takes a weight's time off it") {
  for (int p = 1; p <= 5; ++p)
    for (int m = p; m <= 3 * p + 2; ++m)
      for (const ChunkCost& cost : {ChunkCost{1, 1, 1}, ChunkCost{2, 2, 1}, ChunkCost{1, 2, 1}}) {
        const std::int64_t f = cost.forward, i = cost.backward_input, w = cost.backward_weight;
        CAPTURE(p, m, f, i, w);
        CHECK(idle_of("1f1b", {p, 1, m}, cost) == (p - 1) * (f + i + w));
        CHECK(idle_of("zero_bubble_h1", {p, 1, m}, cost) == (p - 1) * (f + i - w));
        // Costs are of a chunk, and a stage has `chunks` of them: (p - 1)(F + B) / chunks of the stage's.
        for (int chunks = 1; chunks <= 3; ++chunks)
          CHECK(idle_of("interleaved_1f1b", {p, chunks, m}, cost) == (p - 1) * (f + i + w));
      }
}

TEST_CASE("a V of two chunks a stage idles for one chunk's longer half, and never for longer than the paper's order") {
  for (int p = 1; p <= 6; ++p)
    for (const int m : {1, 2, p, 2 * p - 1, 2 * p, 3 * p + 2})
      for (const ChunkCost& cost :
           {ChunkCost{4, 4, 4}, ChunkCost{4, 4, 3}, ChunkCost{4, 4, 2}, ChunkCost{4, 6, 3}, ChunkCost{4, 6, 5}}) {
        const std::int64_t longer = cost.backward_input;
        CAPTURE(p, m, cost.backward_input, cost.backward_weight);
        const std::int64_t idle = idle_of("zero_bubble_v", {p, 2, m}, cost);
        if (m >= 2 * p - 1) CHECK(idle == (p - 1) * longer);
        // Two chunks there and back are p stages of twice the length: never worse than splitting nothing.
        if (m >= p) CHECK(idle <= 2 * (p - 1) * (cost.forward + cost.of(ComputeKind::Backward)));
        CHECK(idle_of("zero_bubble_v", {1, 2, m}, cost) == 0);
      }
  // Fewer micro-batches than the paper's order is made for: it idles for 60 here, the greedy one for 30.
  CHECK(idle_of("zero_bubble_v", {4, 2, 4}, {10, 10, 10}) == 30);
}

TEST_CASE("dualpipe_v idles for two forwards less a weight's time, gpipe as 1f1b") {
  for (int p = 1; p <= 6; ++p)
    for (const int m : {2 * p, 2 * p + 1, 3 * p + 2})
      for (const ChunkCost& cost : {ChunkCost{4, 4, 4}, ChunkCost{4, 4, 3}, ChunkCost{4, 4, 2}}) {
        CAPTURE(p, m, cost.forward, cost.backward_input, cost.backward_weight);
        CHECK(idle_of("dualpipe_v", {p, 2, m}, cost) == (p - 1) * (2 * cost.forward - cost.backward_weight));
        CHECK(idle_of("gpipe", {p, 1, m}, cost) == (p - 1) * (cost.forward + cost.of(ComputeKind::Backward)));
      }
}

TEST_CASE("a V is ordered by what its chunks cost") {
  const auto scheduler = make_scheduler("zero_bubble_v");
  const auto makespan = [&](const std::vector<std::int64_t>& weights, const std::vector<std::int64_t>& told) {
    PipelineShape shape{3, 2, 8};
    std::vector<ChunkCost> costs;
    for (std::size_t chunk = 0; chunk < 6; ++chunk) {
      costs.push_back({weights[chunk], weights[chunk], weights[chunk], 0});
      shape.chunk_costs.push_back({0, told[chunk], told[chunk], told[chunk], 0});
    }
    const Placement placement = scheduler->place(costs_of(6), shape);
    CHECK(placement.stage_of_chunk == std::vector<int>{0, 1, 2, 2, 1, 0});
    ComputeOrders orders;
    for (int stage = 0; stage < 3; ++stage) orders.push_back(scheduler->order(shape, stage));
    return simulate(orders, placement, costs).makespan;
  };
  const std::vector<std::int64_t> equal(6, 10);
  int shorter = 0;
  for (const std::int64_t last : {10, 20, 30, 40, 60})
    for (const std::int64_t middle : {10, 20, 40}) {
      const std::vector<std::int64_t> real{10, 10, 10, middle, 10, last};
      CAPTURE(last, middle);
      CHECK(makespan(real, real) <= makespan(real, equal));
      shorter += makespan(real, real) < makespan(real, equal);
    }
  CHECK(shorter > 3);
}

TEST_CASE(
    "the config's numbers of layers must be those of the chunks and of the model, and the scheduler follows them") {
  const auto scheduler = make_scheduler("interleaved_1f1b");
  const auto plan = [&](const std::vector<int>& layers_per_chunk) {
    return plan_step("scheduler/mine", *scheduler, {2, 2, 4, layers_per_chunk}, costs_of(9));
  };
  CHECK(plan({1, 3, 4, 1}).placement.layers_of_chunk ==
        std::vector<std::pair<int, int>>{{0, 1}, {1, 4}, {4, 8}, {8, 9}});
  CHECK_THROWS_WITH(plan({4, 5}), Catch::Contains("parallel.layers_per_chunk has 2 numbers, which sum up to 9; this "
                                                  "run has 4 chunks (2 stages x 2), and the model 9"));
  CHECK_THROWS_WITH(plan({1, 3, 4, 2}), Catch::Contains("which sum up to 10"));
  const FixedScheduler stubborn({{0, 1}, {{0, 1}, {1, 2}}}, {"F0.0 B0.0", "F1.0 B1.0"});
  CHECK_NOTHROW(plan_step("scheduler/mine", stubborn, {2, 1, 1, {1, 1}}, costs_of(2)));
  const FixedScheduler other({{0, 1}, {{0, 2}, {2, 3}}}, {"F0.0 B0.0", "F1.0 B1.0"});
  CHECK_THROWS_WITH(plan_step("scheduler/mine", other, {2, 1, 1, {1, 2}}, costs_of(3)),
                    Catch::Contains("scheduler/mine cuts the model's layers by itself"));
}

// Declares less than its order holds.
class Understated final : public FixedScheduler {
 public:
  using FixedScheduler::FixedScheduler;
  std::optional<int> peak_live(const PipelineShape&, int) const override { return 1; }
};

TEST_CASE("an order that holds more activations than its scheduler declares is refused") {
  const Understated scheduler({{0}, {{0, 2}}}, {"F0.0 F0.1 B0.0 B0.1"});
  CHECK_THROWS_WITH(
      plan_step("scheduler/mine", scheduler, {1, 1, 2}, costs_of(2)),
      Catch::Contains("stage 0: the order holds the activations of 2 passes at once, and peak_live() declares 1"));
}
