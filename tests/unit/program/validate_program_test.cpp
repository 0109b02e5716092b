// Everything that can be wrong with a schedule or a program is found and said.
#include <strata/error.hpp>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "program/validate_schedule.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

const Placement two_stages = {{0, 1}, {{0, 1}, {1, 2}}};
constexpr const char* kGood0 = "F0.0 F0.1 B0.0 B0.1";
constexpr const char* kGood1 = "F1.0 B1.0 F1.1 B1.1";
constexpr const char* kUpdates0 = "F0.0 F0.1 B0.0 U0.0 B0.1 U0.1";

std::string refusal(const std::string& stage0, const std::string& stage1) {
  try {
    plan_step("scheduler/mine", FixedScheduler(two_stages, {stage0, stage1}), {2, 1, 2}, costs_of(2));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string refusal(const Placement& placement, int chunks_per_stage = 1) {
  try {
    validate_placement("scheduler/mine", placement, {2, chunks_per_stage, 2}, 4);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("broken orders are each told in a sentence with the place in the grid") {
  CHECK(refusal(kGood0, kGood1) == "no error");
  CHECK(refusal(kUpdates0, "F1.0 B1.0 U1.0 F1.1@1 B1.1@1 U1.1") == "no error");
  const struct {
    const char* stage0;
    const char* stage1;
    const char* sentence;
    const char* place;
  } cases[] = {
      {"B0.0 F0.0 F0.1 B0.1", kGood1, "stage 0: B0.0 comes before its forward F0.0", "[B0.0]"},
      {"F0.0 F0.1 B0.0", kGood1, "stage 0: B0.1 is never computed", "[?]"},
      {"F0.0 B0.0", kGood1, "stage 0: F0.1 is never computed", "[?]"},
      {"", kGood1, "stage 0: F0.0 is never computed", "[?]"},
      {"F0.0 F0.1 F0.0 B0.0 B0.1", kGood1, "stage 0: F0.0 is computed twice", "[F0.0]"},
      {"F0.0 F0.1 B0.0 B0.1 B0.1", kGood1, "stage 0: B0.1 is computed twice", "[B0.1]"},
      {"F0.0 F0.1 B0.0 B0.1 F0.2", kGood1, "F0.2 names micro-batch 2; the step has micro-batches 0 to 1", "[F0.2]"},
      {"F0.0 F0.1 B0.0 B0.1 F7.0", kGood1, "F7.0 names chunk 7; the pipeline has chunks 0 to 1", "[F7.0]"},
      {kGood0, "F1.0 B1.0 F0.1 B1.1", "F0.1 computes chunk 0, but place() put it on stage 0", "[F0.1]"},
      {kGood0, "F1.0 I1.0 F1.1 B1.1", "stage 1: W1.0 is never computed", "[?]"},
      {kGood0, "F1.0 W1.0 I1.0 F1.1 B1.1", "W1.0 comes before I1.0", "[W1.0]"},
      {kGood0, "F1.0 I1.0 B1.0 F1.1 B1.1", "B1.0 follows I1.0; use one backward, either whole or split", "[B1.0]"},
      {kGood0, "F1.0 B1.0 I1.0 F1.1 B1.1", "I1.0 follows B1.0; use one backward, either whole or split", "[I1.0]"},
      {kGood0, "F1.0 B1.0 W1.0 F1.1 B1.1", "W1.0 follows B1.0", "[W1.0]"},
      {kGood0, "F1.0@1 B1.0 F1.1 B1.1", "F1.0@1 uses the weights of 1 updates; by then the chunk has made 0",
       "[F1.0@1]"},
      {kUpdates0, "F1.0 B1.0 U1.0 F1.1@1 B1.1 U1.1", "B1.1 uses other weights than its forward F1.1@1", "[B1.1]"},
      {kUpdates0, "F1.0 B1.0 F1.1 B1.1", "no update takes the gradient of B1.0, and there are updates, as U0.0", "[?]"},
      {kUpdates0, "F1.0 B1.0 U1.0 F1.1 B1.1", "no update takes the gradient of B1.1", "[?]"},
      {kUpdates0, "F1.0 B1.0 F1.1 B1.1 U1.1", "U1.1 takes the gradients of 2 of the micro-batches, and another",
       "[U1.1]"},
      {kUpdates0, "F1.0 U1.0 B1.0 F1.1 B1.1 U1.1", "U1.0 comes before the backward of micro-batch 0", "[U1.0]"},
      {kUpdates0, "F1.0 B1.0 F1.1 B1.1 U1.0 U1.1", "U1.0 comes after the backward of micro-batch 1", "[U1.0]"},
      {kUpdates0, "F1.0 B1.0 U1.0 U1.0 F1.1 B1.1 U1.1", "U1.0 has no gradient to take", "[U1.0]"},
      {kUpdates0, "F1.0 B1.0 U1.0 F1.1@2 B1.1@2 U1.1", "F1.1@2 uses the weights of 2 updates", "[F1.1@2]"},
      {kUpdates0, "F1.0 B1.0 U1.0 F1.1 B1.1 U1.1@1", "U1.1@1 names a weight version", "[U1.1@1]"},
      {"F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1",
       "wait for each other for ever: stage 0 with B0.0 for B1.0 of stage 1, stage 1 with F1.1 for F0.1 of stage 0",
       "[B0.0]"},
  };
  for (const auto& broken : cases) {
    const std::string error = refusal(broken.stage0, broken.stage1);
    INFO(error);
    CHECK_THAT(error, Contains("scheduler/mine"));
    CHECK_THAT(error, Contains(broken.sentence));
    CHECK_THAT(error, Contains(broken.place));
    CHECK_THAT(error, Contains("<-- here"));
    CHECK_THAT(error, Contains("\nstage 0 |"));
    CHECK_THAT(error, Contains("\nstage 1 |"));
  }
}

TEST_CASE("the grid stands by time, and a long one is cut around the place") {
  CHECK_THAT(refusal("F0.0 F0.1 B0.0", kGood1),
             Contains("stage 0 | F0.0 F0.1 .    .    B0.0 --   [?]   <-- here") ||
                 Contains("stage 0 | F0.0 F0.1 .    .    B0.0 --   [?]    .    .   <-- here"));
  std::string forwards;
  std::string backwards;
  for (int i = 0; i < 60; ++i) {
    forwards += "F0." + std::to_string(i) + " ";
    if (i != 59) backwards += "B0." + std::to_string(i) + " ";
  }
  const FixedScheduler scheduler({{0}, {{0, 2}}}, {forwards + backwards});
  CHECK_THROWS_WITH(plan_step("scheduler/mine", scheduler, {1, 1, 60}, costs_of(2)),
                    Contains("stage 0 | ...") && Contains("[?]") && !Contains("F0.1 "));
}

TEST_CASE("broken placements are each told in a sentence") {
  const Placement good = {{0, 1}, {{0, 2}, {2, 4}}};
  CHECK(refusal(good) == "no error");
  Placement bad = good;
  bad.stage_of_chunk = {0, 2};
  CHECK_THAT(refusal(bad), Contains("puts chunk 1 on stage 2; the pipeline has stages 0 to 1"));
  bad.stage_of_chunk = {-1, 1};
  CHECK_THAT(refusal(bad), Contains("on stage -1"));
  bad.stage_of_chunk = {0, 0};
  CHECK_THAT(refusal(bad), Contains("puts 2 chunks on stage 0; every stage holds 1"));
  bad.stage_of_chunk = {0};
  CHECK_THAT(refusal(bad), Contains("gives stages for 1 chunk and layers for 2; the pipeline has 2"));
  CHECK_THAT(refusal(good, 2), Contains("the pipeline has 4"));
  bad = good;
  bad.layers_of_chunk = {{0, 2}, {3, 4}};
  CHECK_THAT(refusal(bad), Contains("gives chunk 1 the layers [3, 4); the next layer to place is 2"));
  bad.layers_of_chunk = {{0, 4}, {4, 4}};
  CHECK_THAT(refusal(bad), Contains("[4, 4), which is empty"));
  bad.layers_of_chunk = {{0, 1}, {1, 3}};
  CHECK_THAT(refusal(bad), Contains("places 3 layers; the model has 4"));
  bad.layers_of_chunk = {{0, 1}, {1, 5}};
  CHECK_THAT(refusal(bad), Contains("places 5 layers; the model has 4"));
}

TEST_CASE("a program with one instruction left out is caught") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {3, 1, 4}, costs_of(5));
  const Lookahead lookahead{1, 20, 0, 30};
  LayerOptions layers = plain_layers(5);
  layers.policy = GENERATE(config::StepPolicy::Plain, config::StepPolicy::Delayed);
  layers.sums_of_round = {true, false, true};
  const auto first_of = [&](std::size_t stage) { return plan.placement.layers_of_chunk[stage].first; };
  std::vector<Program> programs;
  for (std::size_t stage = 0; stage < 3; ++stage) {
    layers.replicated = {first_of(stage)};
    programs.push_back(lower_training(plan, layers, lookahead, static_cast<int>(stage)));
  }
  REQUIRE_NOTHROW(validate_communication(programs, plan.placement));
  int left_out = 0;
  for (std::size_t stage = 0; stage < 3; ++stage) {
    Program& program = programs[stage];
    layers.replicated = {first_of(stage)};
    const Program whole = program;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (whole[i].op == Op::Prefetch) continue;  // its Gather then does the work
      program = whole;
      program.erase(program.begin() + static_cast<std::ptrdiff_t>(i));
      const auto check = [&] {
        validate_communication(programs, plan.placement);
        validate_residency(program, layers.parameters, lookahead);
        validate_reduction(program, layers.parameters);
        validate_end_of_step(program, layers.parameters, layers.replicated, layers.sums_of_round);
      };
      INFO(to_string(whole[i]));
      CHECK_THROWS_AS(check(), Bug);
      ++left_out;
    }
    program = whole;
  }
  CHECK(left_out > 150);
}

TEST_CASE("a program with an instruction twice is caught") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 2}, costs_of(3));
  const Lookahead lookahead{1, 20, 0, 30};
  LayerOptions layers = plain_layers(3);
  layers.policy = GENERATE(config::StepPolicy::Plain, config::StepPolicy::Delayed);
  layers.sums_of_round = {false, true};
  std::vector<Program> programs = {lower_training(plan, layers, lookahead, 0),
                                   lower_training(plan, layers, lookahead, 1)};
  for (auto& program : programs) {
    const Program whole = program;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      program = whole;
      program.insert(program.begin() + static_cast<std::ptrdiff_t>(i), whole[i]);
      const auto check = [&] {
        validate_communication(programs, plan.placement);
        validate_residency(program, layers.parameters, lookahead);
        validate_reduction(program, layers.parameters);
        validate_end_of_step(program, layers.parameters, layers.replicated, layers.sums_of_round);
      };
      INFO(to_string(whole[i]));
      CHECK_THROWS_AS(check(), Bug);
    }
    program = whole;
  }
}

TEST_CASE("wrong flags are caught") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {1, 1, 3}, costs_of(2));
  const LayerOptions layers = plain_layers(2);
  const Program whole = lower_training(plan, layers, {}, 0);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].op != Op::Reduce && whole[i].op != Op::BorrowGradient) continue;
    Program program = whole;
    program[i].first = !program[i].first;
    CHECK_THROWS_AS(validate_reduction(program, layers.parameters), Bug);
    program = whole;
    program[i].last = !program[i].last;
    CHECK_THROWS_AS(validate_reduction(program, layers.parameters), Bug);
  }
}

TEST_CASE("orders of communication that only some backends survive are caught") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 2}, costs_of(2));
  const LayerOptions layers = plain_layers(2);
  const auto only_communication = [&](int stage) {
    Program program;
    for (const Instruction& instruction : lower_training(plan, layers, {}, stage)) {
      if (is_compute(instruction.op) || is_send(instruction.op) || is_receive(instruction.op))
        program.push_back(instruction);
    }
    return program;
  };
  std::vector<Program> programs = {only_communication(0), only_communication(1)};
  REQUIRE_NOTHROW(validate_communication(programs, plan.placement));
  // Stage 0 posts its first gradient before it sends the second activation, stage 1 receives that one first.
  auto& first = programs[0];
  const auto find = [&](Program& program, const std::string& text) {
    return std::find_if(program.begin(), program.end(), [&](const Instruction& i) { return to_string(i) == text; });
  };
  const Instruction receive = *find(first, "ReceiveGradient 0.0 from stage 1");
  first.erase(find(first, "ReceiveGradient 0.0 from stage 1"));
  first.insert(find(first, "SendActivation 0.1 to stage 1"), receive);
  CHECK_THROWS_WITH(validate_communication(programs, plan.placement), Contains("wait for each other for ever") &&
                                                                          Contains("<-- here") &&
                                                                          Contains("the front of its queue"));
  // Crossed in one direction.
  programs = {only_communication(0), only_communication(1)};
  std::iter_swap(find(programs[1], "ReceiveActivation 1.0 from stage 0"),
                 find(programs[1], "ReceiveActivation 1.1 from stage 0"));
  CHECK_THROWS_WITH(validate_communication(programs, plan.placement),
                    Contains("the message sent does not match what the other end receives"));
}
