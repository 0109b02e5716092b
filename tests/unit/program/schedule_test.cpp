// The schedulers, and the communication of their orders, over a grid of shapes.
#include <strata/error.hpp>

#include <algorithm>

#include "catch.hpp"
#include "communicate.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

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

TEST_CASE("an unsuitable shape or model is refused in a sentence") {
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

TEST_CASE("a V is ordered by its chunks' costs") {
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

TEST_CASE("the config's numbers of layers must fit the model and decide the cut") {
  const auto scheduler = make_scheduler("interleaved_1f1b");
  const auto plan = [&](const std::vector<int>& layers_per_chunk) {
    return plan_step("scheduler/mine", *scheduler, {2, 2, 4, layers_per_chunk}, costs_of(9));
  };
  CHECK(plan({1, 3, 4, 1}).placement.layers_of_chunk ==
        std::vector<std::pair<int, int>>{{0, 1}, {1, 4}, {4, 8}, {8, 9}});
  CHECK_THROWS_WITH(plan({4, 5}), Catch::Contains("parallel.layers_per_chunk has 2 numbers with the sum 9; it must "
                                                  "have one for each of the 4 chunks (2 stages x 2), with the sum 9"));
  CHECK_THROWS_WITH(plan({1, 3, 4, 2}), Catch::Contains("with the sum 10"));
  const FixedScheduler stubborn({{0, 1}, {{0, 1}, {1, 2}}}, {"F0.0 B0.0", "F1.0 B1.0"});
  CHECK_NOTHROW(plan_step("scheduler/mine", stubborn, {2, 1, 1, {1, 1}}, costs_of(2)));
  const FixedScheduler other({{0, 1}, {{0, 2}, {2, 3}}}, {"F0.0 B0.0", "F1.0 B1.0"});
  CHECK_THROWS_WITH(plan_step("scheduler/mine", other, {2, 1, 1, {1, 2}}, costs_of(3)),
                    Catch::Contains("scheduler/mine chooses its own cut of the model's layers"));
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
