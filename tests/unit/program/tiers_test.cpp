// Buffers that rest on other memory tiers: where the program brings them and stores them.
#include <strata/error.hpp>

#include "catch.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "schedulers.hpp"

using namespace strata;
using namespace strata::program;

namespace {

LayerOptions moving_layers(int layers) {
  LayerOptions options = plain_layers(layers);
  for (FlatParameterSize& parameter : options.parameters.flat_parameters) {
    parameter.values_leave = parameter.gradient_leaves = true;
    parameter.parameter_moves = parameter.gradient_moves = parameter.state_moves = parameter.kept_moves = 8;
  }
  return options;
}

Lookahead gathers_each_use() {
  return {.layers = 1, .elements = 100, .reuse_distance = 0, .live_parameters = 100};
}

}  // namespace

TEST_CASE("the whole program of one rank whose buffers all move, read line by line") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(2));
  LayerOptions layers = moving_layers(2);
  layers.replicated = {1};
  layers.sums_of_round = {true};
  CHECK(to_text(lower_training(plan, layers, gathers_each_use(), 0)) ==
        std::vector<std::string>{"Fetch parameter 0 parameter with contents",
                                 "Await parameter 0 parameter",
                                 "Gather parameter 0 for forward",
                                 "Store parameter 0 parameter",
                                 "Fetch parameter 1 parameter with contents",
                                 "Await parameter 1 parameter",
                                 "Prefetch parameter 1 for forward",
                                 "Forward 0.0 layer 0",
                                 "Release parameter 0 for forward",
                                 "Gather parameter 1 for forward",
                                 "Store parameter 1 parameter",
                                 "Forward 0.0 layer 1",
                                 "Fetch parameter 0 parameter with contents",
                                 "Await parameter 0 parameter",
                                 "Prefetch parameter 0 for backward",
                                 "Fetch parameter 1 gradient",
                                 "Await parameter 1 gradient",
                                 "BorrowGradient parameter 1 micro-batch 0 first last",
                                 "Backward 0.0 layer 1",
                                 "Reduce parameter 1 micro-batch 0 first last",
                                 "Release parameter 1 for backward",
                                 "Gather parameter 0 for backward",
                                 "Store parameter 0 parameter",
                                 "Fetch parameter 0 gradient",
                                 "Await parameter 0 gradient",
                                 "BorrowGradient parameter 0 micro-batch 0 first last",
                                 "Backward 0.0 layer 0",
                                 "Reduce parameter 0 micro-batch 0 first last",
                                 "FinishGradient parameter 1",
                                 "Store parameter 1 gradient changed",
                                 "Settle parameter 1 gradient",
                                 "Release parameter 0 for backward",
                                 "FinishGradient parameter 0",
                                 "SquareGradient parameter 0",
                                 "Store parameter 0 gradient changed",
                                 "Settle parameter 0 gradient",
                                 "Fetch parameter 1 gradient with contents",
                                 "Await parameter 1 gradient",
                                 "SumReplicas parameter 1",
                                 "Store parameter 1 gradient changed",
                                 "Settle parameter 1 gradient",
                                 "Fetch parameter 1 gradient with contents",
                                 "Await parameter 1 gradient",
                                 "SquareGradient parameter 1",
                                 "Store parameter 1 gradient",
                                 "Norm",
                                 "Fetch parameter 0 gradient with contents",
                                 "Await parameter 0 gradient",
                                 "Fetch parameter 0 optimizer with contents",
                                 "Await parameter 0 optimizer",
                                 "Fetch parameter 0 parameter with contents",
                                 "Await parameter 0 parameter",
                                 "Measure parameter 0 round 0",
                                 "Store parameter 0 gradient",
                                 "Store parameter 0 optimizer",
                                 "Store parameter 0 parameter",
                                 "Fetch parameter 1 gradient with contents",
                                 "Await parameter 1 gradient",
                                 "Fetch parameter 1 optimizer with contents",
                                 "Await parameter 1 optimizer",
                                 "Fetch parameter 1 parameter with contents",
                                 "Await parameter 1 parameter",
                                 "Measure parameter 1 round 0",
                                 "Store parameter 1 gradient",
                                 "Store parameter 1 optimizer",
                                 "Store parameter 1 parameter",
                                 "SumStatistics round 0",
                                 "Fetch parameter 0 gradient with contents",
                                 "Await parameter 0 gradient",
                                 "Fetch parameter 0 optimizer with contents",
                                 "Await parameter 0 optimizer",
                                 "Fetch parameter 0 parameter with contents",
                                 "Await parameter 0 parameter",
                                 "Update parameter 0 round 0",
                                 "Publish parameter 0",
                                 "Store parameter 0 gradient",
                                 "Store parameter 0 optimizer changed",
                                 "Settle parameter 0 optimizer",
                                 "Store parameter 0 parameter changed",
                                 "Settle parameter 0 parameter",
                                 "Fetch parameter 1 gradient with contents",
                                 "Await parameter 1 gradient",
                                 "Fetch parameter 1 optimizer with contents",
                                 "Await parameter 1 optimizer",
                                 "Fetch parameter 1 parameter with contents",
                                 "Await parameter 1 parameter",
                                 "Update parameter 1 round 0",
                                 "Publish parameter 1",
                                 "Store parameter 1 gradient",
                                 "Store parameter 1 optimizer changed",
                                 "Settle parameter 1 optimizer",
                                 "Store parameter 1 parameter changed",
                                 "Settle parameter 1 parameter"});
}

TEST_CASE("nothing is added where nothing moves") {
  const StepPlan plan = plan_step("scheduler/1f1b", *make_scheduler("1f1b"), {2, 1, 4}, costs_of(4));
  for (const Instruction& instruction : lower_training(plan, plain_layers(4), gathers_each_use(), 0))
    CHECK(!is_movement(instruction.op));
}

TEST_CASE("a program with a missing or doubled Fetch or Store is refused") {
  const config::StepPolicy policy = GENERATE(config::StepPolicy::Plain, config::StepPolicy::Delayed);
  for (const char* const scheduler : {"sequential", "1f1b", "zero_bubble_h1"}) {
    const StepPlan plan =
        plan_step(std::string("scheduler/") + scheduler, *make_scheduler(scheduler), {2, 1, 3}, costs_of(5));
    for (int stage = 0; stage < 2; ++stage) {
      LayerOptions layers = moving_layers(5);
      layers.policy = policy;
      layers.sums_of_round = {false, true};
      const Program program = lower_training(plan, layers, gathers_each_use(), stage);
      int tried = 0;
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (!is_movement(program[i].op)) continue;
        ++tried;
        Program less = program, more = program;
        less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
        more.insert(more.begin() + static_cast<std::ptrdiff_t>(i), program[i]);
        CHECK_THROWS_AS(validate_tiers(less, layers.parameters), Bug);
        CHECK_THROWS_AS(validate_tiers(more, layers.parameters), Bug);
      }
      CHECK(tried > 30);
    }
  }
}

TEST_CASE("a gradient is not kept in a buffer that is away") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(2));
  LayerOptions layers = moving_layers(2);
  layers.policy = config::StepPolicy::Delayed;
  Program program = lower_training(plan, layers, gathers_each_use(), 0);
  const auto keep = std::ranges::find(program, Op::Keep, &Instruction::op);
  REQUIRE(keep != program.end());
  const auto about_kept = [flat = keep->flat_parameter](const Instruction& instruction) {
    return instruction.kept() && instruction.flat_parameter == flat && is_movement(instruction.op);
  };
  const auto begin = std::find_if(program.begin(), keep, [&](const Instruction& one) {
    return one.op == Op::SquareGradient && one.flat_parameter == keep->flat_parameter;
  });
  program.erase(std::remove_if(begin, program.end(), about_kept), program.end());
  CHECK_THROWS_WITH(validate_tiers(program, layers.parameters), Catch::Contains("uses a gradient buffer that is away"));
}

TEST_CASE("a gradient is not taken away while its reduction is under way") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 2}, costs_of(2));
  const LayerOptions layers = moving_layers(2);
  Program program = lower_training(plan, layers, gathers_each_use(), 0);
  for (std::size_t i = 0; i + 1 < program.size(); ++i)
    if (program[i].op == Op::FinishGradient && program[i + 1].op == Op::Store) {
      std::swap(program[i], program[i + 1]);
      CHECK_THROWS_AS(validate_tiers(program, layers.parameters), Bug);
      return;
    }
  FAIL("no gradient leaves after it is finished");
}

TEST_CASE("where the optimizer updates at home, nothing is fetched for the update") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(2));
  LayerOptions layers = moving_layers(2);
  layers.policy = GENERATE(config::StepPolicy::Plain, config::StepPolicy::Delayed);
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
    parameter.state_moves = parameter.kept_moves = 0;
    parameter.updates_at_home = true;
  }
  const Program program = lower_training(plan, layers, gathers_each_use(), 0);
  for (std::size_t i = 1; i < program.size(); ++i)
    if (program[i].op == Op::Update || program[i].op == Op::Keep) CHECK(program[i - 1].op != Op::Fetch);
}

TEST_CASE("a rank that owns nothing of a parameter makes the same collectives in the same order") {
  const StepPlan plan = plan_step("scheduler/sequential", *make_scheduler("sequential"), {1, 1, 1}, costs_of(3));
  const auto collectives = [&](const LayerOptions& layers) {
    std::vector<std::string> texts;
    for (const Instruction& instruction : lower_training(plan, layers, gathers_each_use(), 0))
      if (instruction.category == Category{} && instruction.op != Op::Fetch && instruction.op != Op::Await &&
          instruction.op != Op::Store && instruction.op != Op::Settle)
        texts.push_back(to_text(Program{instruction}).front());
    return texts;
  };
  const LayerOptions all = moving_layers(3);
  LayerOptions some = all;
  FlatParameterSize& none = some.parameters.flat_parameters.at(1);
  none.parameter_moves = none.gradient_moves = none.state_moves = none.kept_moves = 0;
  CHECK(collectives(some) == collectives(all));
}
