// Stages that update within the step: which weights they compute with, and what keeps them.
#include <strata/error.hpp>

#include <algorithm>
#include <cstdint>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

// Parameters that stay, and whose new values each rank must wait for.
const Lookahead kept{0, 0, INT64_MAX, INT64_MAX};
const Lookahead resident{.resident = true};

// PipeDream with stashed weights on two stages, one layer each.
StepPlan stages_that_update() {
  const FixedScheduler scheduler({{0, 1}, {{0, 1}, {1, 2}}}, {"F0.0 F0.1 B0.0 U0.0 F0.2@1 B0.1 U0.1 B0.2@1 U0.2",
                                                              "F1.0 B1.0 U1.0 F1.1@1 B1.1@1 U1.1 F1.2@2 B1.2@2 U1.2"});
  return plan_step("scheduler/mine", scheduler, {2, 1, 3}, costs_of(2));
}

std::vector<std::string> without_transfers(const Program& program) {
  Program rest = program;
  std::erase_if(rest, [](const Instruction& one) { return is_send(one.op) || is_receive(one.op); });
  return to_text(rest);
}

void check(const Program& program, const LayerOptions& layers, const Lookahead& lookahead, int updates) {
  validate_residency(program, layers.parameters, lookahead);
  validate_reduction(program, layers.parameters);
  validate_end_of_step(program, layers.parameters, {}, layers.sums_of_round, updates);
  validate_versions(program, layers.parameters, lookahead.resident);
}

std::size_t index_of(const Program& program, const std::string& text) {
  const std::vector<std::string> lines = to_text(program);
  const auto found = std::find(lines.begin(), lines.end(), text);
  INFO(text);
  REQUIRE(found != lines.end());
  return static_cast<std::size_t>(found - lines.begin());
}

}  // namespace

TEST_CASE("the program of a stage that updates after every backward, line by line") {
  const StepPlan plan = stages_that_update();
  const LayerOptions layers = plain_layers(2);
  CHECK(without_transfers(lower_training(plan, layers, resident, 0)) ==
        std::vector<std::string>{"Forward 0.0 layer 0",
                                 "Forward 0.1 layer 0",
                                 "BorrowGradient parameter 0 micro-batch 0 first last",
                                 "Backward 0.0 layer 0",
                                 "Reduce parameter 0 micro-batch 0 first last",
                                 "Stash parameter 0 version 0",
                                 "FinishGradient parameter 0",
                                 "SquareGradient parameter 0",
                                 "Update parameter 0 round 0",
                                 "Publish parameter 0",
                                 "Forward 0.2 layer 0 version 1",
                                 "BorrowGradient parameter 0 micro-batch 1 first last",
                                 "Bind parameter 0 version 0",
                                 "Backward 0.1 layer 0",
                                 "Bind parameter 0 newest",
                                 "Drop parameter 0 version 0",
                                 "Reduce parameter 0 micro-batch 1 first last",
                                 "Stash parameter 0 version 1",
                                 "FinishGradient parameter 0",
                                 "SquareGradient parameter 0",
                                 "Update parameter 0 round 0 version 1",
                                 "Publish parameter 0",
                                 "BorrowGradient parameter 0 micro-batch 2 first last",
                                 "Bind parameter 0 version 1",
                                 "Backward 0.2 layer 0 version 1",
                                 "Bind parameter 0 newest",
                                 "Drop parameter 0 version 1",
                                 "Reduce parameter 0 micro-batch 2 first last",
                                 "FinishGradient parameter 0",
                                 "SquareGradient parameter 0",
                                 "Update parameter 0 round 0 version 2",
                                 "Publish parameter 0",
                                 "Norm"});
  for (const Instruction& instruction : lower_training(plan, layers, resident, 1))
    CHECK((instruction.op != Op::Stash && instruction.op != Op::Bind));
}

TEST_CASE("values that a strategy publishes are gathered before they are used again") {
  const std::vector<std::string> lines =
      without_transfers(lower_training(stages_that_update(), plain_layers(2), kept, 1));
  const std::vector<std::string> first{"Gather parameter 1 for forward",
                                       "Forward 1.0 layer 1",
                                       "BorrowGradient parameter 1 micro-batch 0 first last",
                                       "Backward 1.0 layer 1",
                                       "Reduce parameter 1 micro-batch 0 first last",
                                       "Release parameter 1 for backward",
                                       "FinishGradient parameter 1",
                                       "SquareGradient parameter 1",
                                       "Update parameter 1 round 0",
                                       "Publish parameter 1",
                                       "Gather parameter 1 for forward",
                                       "Forward 1.1 layer 1 version 1"};
  REQUIRE(lines.size() > first.size());
  CHECK(std::vector<std::string>(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(first.size())) == first);
}

TEST_CASE("a missing or doubled instruction of updates within the step is caught") {
  const Lookahead& lookahead = GENERATE(true, false) ? kept : resident;
  LayerOptions layers = plain_layers(7);
  layers.sums_of_round = {true, false};
  const StepPlan plan = plan_step("scheduler/pipedream", *make_scheduler("pipedream"), {3, 1, 4}, costs_of(7));
  for (int stage = 0; stage < 3; ++stage) {
    const Program whole = lower_training(plan, layers, lookahead, stage);
    REQUIRE_NOTHROW(check(whole, layers, lookahead, 4));
    CHECK_THROWS_AS(check(whole, layers, lookahead, 2), Bug);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (is_compute(whole[i].op) || is_send(whole[i].op) || is_receive(whole[i].op)) continue;  // others' duty
      INFO("stage " << stage << ", " << i << ": " << to_string(whole[i]));
      Program program = whole;
      program.erase(program.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_THROWS_AS(check(program, layers, lookahead, 4), Bug);
      program = whole;
      program.insert(program.begin() + static_cast<std::ptrdiff_t>(i), whole[i]);
      CHECK_THROWS_AS(check(program, layers, lookahead, 4), Bug);
    }
  }
}

TEST_CASE("a layer that computes with the wrong weight version is caught") {
  const LayerOptions layers = plain_layers(2);
  const Program whole = lower_training(stages_that_update(), layers, resident, 0);
  const auto refuses = [&](const Program& program, const std::string& sentence) {
    CHECK_THROWS_WITH(check(program, layers, resident, 3), Contains(sentence) && Contains("<-- here"));
  };
  Program program = whole;
  program[index_of(whole, "Backward 0.1 layer 0")].version = 1;
  refuses(program, "parameter 0 has the values of version 0");
  program = whole;
  program[index_of(whole, "Forward 0.2 layer 0 version 1")].version = 0;
  refuses(program, "parameter 0 has the values of version 1");
  program = whole;
  program[index_of(whole, "Bind parameter 0 version 0")].version = 1;
  refuses(program, "binds a copy that is not there");
  program = whole;
  std::swap(program[index_of(whole, "Stash parameter 0 version 0")], program[index_of(whole, "Publish parameter 0")]);
  refuses(program, "published before its last update");
  program = whole;  // the copy of what the update has written
  const std::size_t update = index_of(whole, "Update parameter 0 round 0");
  std::rotate(program.begin() + static_cast<std::ptrdiff_t>(index_of(whole, "Stash parameter 0 version 0")),
              program.begin() + static_cast<std::ptrdiff_t>(index_of(whole, "Stash parameter 0 version 0") + 1),
              program.begin() + static_cast<std::ptrdiff_t>(update + 1));
  refuses(program, "copies other values than it says");
  program = whole;
  program[index_of(whole, "Update parameter 0 round 0 version 1")].version = 0;
  refuses(program, "the number of updates before it is wrong");
}

TEST_CASE("the chunks of a stage update each by itself, with sums of their own") {
  const FixedScheduler scheduler({{0, 0}, {{0, 1}, {1, 2}}},
                                 {"F0.0 F1.0 B1.0 U1.0 F0.1 B0.0 U0.0 F1.1@1 B1.1@1 U1.1 B0.1 U0.1"});
  LayerOptions layers = plain_layers(2);
  layers.sums_of_round = {true, false};
  const Program program =
      lower_training(plan_step("scheduler/mine", scheduler, {1, 2, 2}, costs_of(2)), layers, resident, 0);
  REQUIRE_NOTHROW(check(program, layers, resident, 2));
  CHECK(std::ranges::count_if(program, [](const Instruction& one) { return one.op == Op::SumStatistics; }) == 4);
  CHECK(std::ranges::count_if(program, [](const Instruction& one) { return one.op == Op::Stash; }) == 1);
}

TEST_CASE("a frozen parameter has one version, and validation has the newest") {
  LayerOptions layers = plain_layers(2);
  layers.parameters.flat_parameters[0].trainable = false;
  for (const Instruction& instruction : lower_training(stages_that_update(), layers, kept, 0))
    CHECK((instruction.op != Op::Stash && instruction.op != Op::Bind && instruction.op != Op::Update));
  for (const Instruction& instruction : lower_evaluation(stages_that_update(), plain_layers(2), resident, 0, 3))
    CHECK((instruction.op != Op::Stash && instruction.op != Op::Bind && instruction.op != Op::Update));
}
