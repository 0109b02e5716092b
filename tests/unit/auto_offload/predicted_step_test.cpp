// The walk through a program, by hand.
#include "auto_offload/predicted_step.hpp"

#include "catch.hpp"

using namespace strata;
using namespace strata::runtime;

namespace {

ParameterUse one_parameter() {
  ParameterUse use;
  use.flat_parameters = {FlatParameterSize{.elements = 100, .parameter_moves = 100, .state_moves = 400}};
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
  return predict_step(program, use, costs(), home).seconds;
}

}  // namespace

TEST_CASE("what instructions take is the median of what they took") {
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

TEST_CASE("a step waits for what has not come by then") {
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

TEST_CASE("what is computed and what is moved are counted apart") {
  const PredictedStep step = predict_step({movement(Op::Fetch, Category::Optimizer), compute(Op::Forward, 1)},
                                          one_parameter(), costs(), {100.0, 50.0});
  CHECK(step.seconds == 3.0);
  CHECK(step.computing == 3.0);
  CHECK(step.moving == 4.0);
}
