// The walk through a program, by hand.
#include "plan/predicted_step.hpp"

#include <vector>

#include "catch.hpp"

using namespace strata;
using namespace strata::plan;
using namespace strata::program;

namespace {

ParameterUse one_parameter() {
  ParameterUse use;
  use.flat_parameters = {
      FlatParameterSize{.elements = 100, .values_leave = true, .parameter_moves = 100, .state_moves = 400}};
  use.flat_parameters_of_layer = {{0}, {0}};
  use.input_moves = {0, 50};
  return use;
}

Instruction compute(Op op, int layer, bool recompute = false) {
  return {.op = op, .chunk = 0, .micro_batch = 0, .layer = layer, .recompute = recompute};
}
Instruction movement(Op op, Category category, int part = 0) {
  return {.op = op, .flat_parameter = 0, .category = category, .contents = true, .changed = true, .part = part};
}

InstructionCosts costs() {
  InstructionCosts known;
  for (const double seconds : {9.0, 2.0, 2.0, 2.0, 1.0}) known.add(compute(Op::Forward, 0), 1, seconds);
  known.add(compute(Op::Forward, 1), 1, 3.0);
  known.add(compute(Op::Backward, 1, true), 1, 8.0);
  known.add({.op = Op::Update, .flat_parameter = 0}, 4, 0.5);
  return known;
}

double seconds(const Program& program, const HomeSpeed& home) {
  const ParameterUse use = one_parameter();
  const InstructionCosts known = costs();
  const StageOfStep stage{program, use, known, home};
  return predict_step({&stage, 1}).seconds;
}

}  // namespace

TEST_CASE("an instruction's predicted time is the median of its measured ones") {
  const InstructionCosts known = costs();
  CHECK(known.of(compute(Op::Forward, 0), 1) == 2.0);
  CHECK(known.of(compute(Op::Backward, 1, true), 1) == 8.0);
  // A forward less, and where only that was seen, a forward more.
  CHECK(known.of(compute(Op::Backward, 1), 1) == 5.0);
  InstructionCosts plain;
  plain.add(compute(Op::Forward, 1), 1, 3.0);
  plain.add(compute(Op::Backward, 1), 1, 5.0);
  CHECK(plain.of(compute(Op::Backward, 1, true), 1) == 8.0);
  // A quarter of an update took half a second.
  CHECK(known.of({.op = Op::Update, .flat_parameter = 0}, 1) == 2.0);
  CHECK(known.of({.op = Op::Update, .flat_parameter = 0}, 2) == 1.0);
  CHECK(known.of({.op = Op::Gather, .flat_parameter = 0}, 1) == 0.0);
}

TEST_CASE("a step waits for unfinished fetches") {
  const HomeSpeed home{100.0, 50.0};
  const Instruction fetch = movement(Op::Fetch, Category::Parameter), await = movement(Op::Await, Category::Parameter);
  CHECK(seconds({fetch, await}, home) == 1.0);
  CHECK(seconds({fetch, compute(Op::Forward, 0), await}, home) == 2.0);
  CHECK(seconds({compute(Op::Forward, 0), fetch, await}, home) == 3.0);
  Instruction empty = fetch;
  empty.contents = false;
  CHECK(seconds({empty, await}, home) == 0.0);
}

TEST_CASE("a home moves one thing after the other") {
  HomeSpeed home{100.0, 50.0};
  const Instruction fetch = movement(Op::Fetch, Category::Parameter), await = movement(Op::Await, Category::Parameter);
  const Instruction state = movement(Op::Fetch, Category::Optimizer),
                    state_here = movement(Op::Await, Category::Optimizer);
  CHECK(seconds({state, fetch, await}, home) == 5.0);
  CHECK(seconds({state, fetch, state_here}, home) == 4.0);
  const Instruction store = movement(Op::Store, Category::Optimizer),
                    settle = movement(Op::Settle, Category::Optimizer);
  CHECK(seconds({store, compute(Op::Forward, 0), settle}, home) == 8.0);
  CHECK(seconds({store, fetch, await}, home) == 9.0);
  Instruction unchanged = store;
  unchanged.changed = false;
  CHECK(seconds({unchanged, fetch, await}, home) == 1.0);
  home.in_background = false;
  CHECK(seconds({fetch, compute(Op::Forward, 0), await}, home) == 3.0);
}

TEST_CASE("computing and moving are counted apart") {
  const Program program{movement(Op::Fetch, Category::Optimizer), compute(Op::Forward, 1)};
  const ParameterUse use = one_parameter();
  const InstructionCosts known = costs();
  const HomeSpeed home{100.0, 50.0};
  const StageOfStep stage{program, use, known, home};
  const PredictedStep step = predict_step({&stage, 1});
  CHECK(step.seconds == 3.0);
  CHECK(step.computing == 3.0);
  CHECK(step.moving == 4.0);
}

TEST_CASE("stages wait for each other's messages, and in the norm for the last stage") {
  const ParameterUse use = one_parameter();
  const HomeSpeed home{100.0, 50.0};
  InstructionCosts first, second;
  first.add(compute(Op::Forward, 0), 1, 2.0);
  first.add(compute(Op::Backward, 0), 1, 3.0);
  second.add(compute(Op::Forward, 1), 1, 5.0);
  second.add(compute(Op::Backward, 1), 1, 7.0);
  second.add({.op = Op::Norm}, 1, 0.5);
  const auto at = [](Instruction instruction, int chunk, int micro_batch) {
    instruction.chunk = chunk;
    instruction.micro_batch = micro_batch;
    return instruction;
  };
  const Program sender{at(compute(Op::Forward, 0), 0, 0),
                       at({.op = Op::SendActivation}, 0, 0),
                       at(compute(Op::Forward, 0), 0, 1),
                       at({.op = Op::SendActivation}, 0, 1),
                       at({.op = Op::ReceiveGradient}, 0, 0),
                       at(compute(Op::Backward, 0), 0, 0),
                       {.op = Op::Norm}};
  const Program receiver{at({.op = Op::ReceiveActivation}, 1, 0),
                         at(compute(Op::Forward, 1), 1, 0),
                         at(compute(Op::Backward, 1), 1, 0),
                         at({.op = Op::SendGradient}, 1, 0),
                         {.op = Op::Norm}};
  const StageOfStep sends{sender, use, first, home}, receives{receiver, use, second, home};
  for (const std::vector<StageOfStep>& stages :
       {std::vector<StageOfStep>{sends, receives}, std::vector<StageOfStep>{receives, sends}}) {
    const PredictedStep step = predict_step(stages);
    // 2 for what is sent, 5 and 7, the backward of 3, and half for the norm; the first stage computes 7.
    CHECK(step.seconds == 17.5);
    CHECK(step.computing == 12.5);
  }
  // It moves its parameters first.
  Program late = receiver;
  late.insert(late.begin() + 1, {movement(Op::Fetch, Category::Optimizer), movement(Op::Await, Category::Optimizer)});
  const std::vector<StageOfStep> stages{sends, {late, use, second, home}};
  CHECK(predict_step(stages).seconds == 19.5);
}

TEST_CASE("measured times reach the other ranks unchanged") {
  const InstructionCosts known = costs();
  const std::vector<std::int64_t> numbers = known.numbers();
  CHECK(numbers.size() % InstructionCosts::numbers_of_one == 0);
  const InstructionCosts there = InstructionCosts::from(numbers);
  CHECK(there.numbers() == numbers);
  CHECK(there.of(compute(Op::Backward, 1), 1) == 5.0);
  CHECK(there.of({.op = Op::Update, .flat_parameter = 0}, 4) == 0.5);
}
