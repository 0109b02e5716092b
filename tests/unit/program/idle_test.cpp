// Idle times and live activations of the schedulers, against their closed forms.
#include <algorithm>
#include <vector>

#include "catch.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

namespace {

Timeline timeline_of(const std::string& name, const PipelineShape& shape, const ChunkCost& cost) {
  const StepPlan plan = plan_step("scheduler/" + name, *make_scheduler(name), shape, costs_of(3 * shape.chunks()));
  return simulate(plan.orders, plan.placement, uniform_costs(shape.chunks(), cost));
}

// Of every stage, from the first start anywhere to the last end.
std::int64_t idle_of(const std::string& name, const PipelineShape& shape, const ChunkCost& cost) {
  const Timeline timeline = timeline_of(name, shape, cost);
  for (const std::int64_t busy : timeline.busy) CHECK(busy == timeline.busy.front());
  return timeline.makespan - timeline.busy.front();
}

}  // namespace

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

TEST_CASE("a V of two chunks idles for one chunk's longer half at most") {
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

TEST_CASE("idle times of the papers' shapes") {
  for (const int p : {2, 4, 8})
    for (const int m : {p, 2 * p, 4 * p})
      for (const int v : {1, 2, 4}) {
        CAPTURE(p, m, v);
        // A stage takes 4, 4 and 4; a chunk its share.
        const ChunkCost stage{4, 4, 4, 0}, half{2, 2, 2, 0}, share{4 / v, 4 / v, 4 / v, 0};
        CHECK(idle_of("interleaved_1f1b", {p, v, m}, share) == (p - 1) * 12 / v);
        if (v > 1) continue;
        CHECK(idle_of("gpipe", {p, 1, m}, stage) == (p - 1) * 12);
        CHECK(idle_of("1f1b", {p, 1, m}, stage) == (p - 1) * 12);
        CHECK(idle_of("zero_bubble_h1", {p, 1, m}, stage) == (p - 1) * 4);
        CHECK(idle_of("sequential", {p, 1, m}, stage) == (p - 1) * m * 12);
        if (m >= 2 * p) {
          const Timeline v_shaped = timeline_of("zero_bubble_v", {p, 2, m}, half);
          CHECK(v_shaped.makespan - v_shaped.busy.front() == (p - 1) * 2);
          CHECK(*std::ranges::max_element(v_shaped.inner_idle) == 0);  // what is idle is before or after
          CHECK(idle_of("dualpipe_v", {p, 2, m}, half) == (p - 1) * 2);
        }
      }
}

TEST_CASE("a stage holds as many activations as its scheduler declares") {
  struct Declared {
    const char* scheduler;
    int chunks;
    bool every_stage;  // else the stage that holds most
  };
  for (const Declared& one : {Declared{"sequential", 2, true},
                              {"gpipe", 1, true},
                              {"1f1b", 1, true},
                              {"interleaved_1f1b", 1, true},
                              {"interleaved_1f1b", 2, true},
                              {"interleaved_1f1b", 4, true},
                              {"zero_bubble_h1", 1, true},
                              {"zero_bubble_v", 2, true},
                              {"dualpipe_v", 2, false},
                              {"l2l", 3, true}})
    for (const int p : {2, 4, 8})
      for (const int m : {2 * p, 4 * p}) {
        const PipelineShape shape{p, one.chunks, m};
        const auto scheduler = make_scheduler(one.scheduler);
        const Timeline timeline = timeline_of(one.scheduler, shape, {1, 1, 1, 0});
        int most = 0;
        for (int stage = 0; stage < p; ++stage) {
          const int held = timeline.peak_live[static_cast<std::size_t>(stage)];
          const std::optional<int> declared = scheduler->peak_live(shape, stage);
          CAPTURE(one.scheduler, p, m, stage);
          REQUIRE(declared.has_value());
          CHECK(held <= *declared);
          if (one.every_stage) CHECK(held == *declared);
          most = std::max(most, held);
        }
        CHECK(most == scheduler->peak_live(shape, 0));
      }
}
