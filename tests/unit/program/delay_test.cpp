// Updates that wait for the next step.
#include <strata/error.hpp>

#include "catch.hpp"
#include "one_rank.hpp"
#include "program/passes.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

LayerOptions delayed_layers() {
  LayerOptions layers = plain_layers(2);
  layers.replicated = {1};
  layers.sums_of_round = {false, true};
  layers.policy = config::StepPolicy::Delayed;
  return layers;
}

}  // namespace

TEST_CASE("a delayed step whose updates need sums makes them after its last backward, read line by line") {
  CHECK(to_text(one_rank(delayed_layers())) ==
        std::vector<std::string>{"Forward 0.0 layer 0",
                                 "Forward 0.0 layer 1",
                                 "BorrowGradient parameter 1 micro-batch 0 first last",
                                 "Backward 0.0 layer 1",
                                 "Reduce parameter 1 micro-batch 0 first last",
                                 "BorrowGradient parameter 0 micro-batch 0 first last",
                                 "Backward 0.0 layer 0",
                                 "Reduce parameter 0 micro-batch 0 first last",
                                 "Update parameter 0 kept round 0",
                                 "Update parameter 1 kept round 0",
                                 "Measure parameter 0 kept round 1",
                                 "Measure parameter 1 kept round 1",
                                 "SumStatistics round 1",
                                 "Update parameter 0 kept round 1",
                                 "Update parameter 1 kept round 1",
                                 "Publish parameter 0",
                                 "Publish parameter 1",
                                 "FinishGradient parameter 1",
                                 "FinishGradient parameter 0",
                                 "SumReplicas parameter 1",
                                 "SquareGradient parameter 0",
                                 "Keep parameter 0",
                                 "SquareGradient parameter 1",
                                 "Keep parameter 1",
                                 "Norm"});
}

TEST_CASE("the program of a delayed step without sums, line by line") {
  LayerOptions layers = delayed_layers();
  layers.sums_of_round = {false};
  CHECK(to_text(one_rank(layers)) == std::vector<std::string>{"Forward 0.0 layer 0",
                                                              "Forward 0.0 layer 1",
                                                              "BorrowGradient parameter 1 micro-batch 0 first last",
                                                              "Backward 0.0 layer 1",
                                                              "Reduce parameter 1 micro-batch 0 first last",
                                                              "Update parameter 1 kept round 0",
                                                              "Publish parameter 1",
                                                              "BorrowGradient parameter 0 micro-batch 0 first last",
                                                              "Backward 0.0 layer 0",
                                                              "Reduce parameter 0 micro-batch 0 first last",
                                                              "Update parameter 0 kept round 0",
                                                              "Publish parameter 0",
                                                              "FinishGradient parameter 1",
                                                              "FinishGradient parameter 0",
                                                              "SumReplicas parameter 1",
                                                              "SquareGradient parameter 0",
                                                              "Keep parameter 0",
                                                              "SquareGradient parameter 1",
                                                              "Keep parameter 1",
                                                              "Norm"});
}

TEST_CASE("a stage where nothing is trained has nothing to delay") {
  LayerOptions layers = plain_layers(2);
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) parameter.trainable = false;
  const Program plain = one_rank(layers);
  layers.policy = config::StepPolicy::Delayed;
  CHECK(one_rank(layers) == plain);
}

TEST_CASE("the kept gradient moves by itself") {
  LayerOptions layers = delayed_layers();
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
    parameter.gradient_leaves = true;
    parameter.gradient_moves = parameter.kept_moves = 8;
  }
  const std::vector<std::string> lines = to_text(one_rank(layers));
  const auto expect = [&](const std::vector<std::string>& some) {
    CAPTURE(some.front());
    CHECK(std::search(lines.begin(), lines.end(), some.begin(), some.end()) != lines.end());
  };
  expect({"Fetch parameter 0 kept gradient with contents", "Await parameter 0 kept gradient",
          "Measure parameter 0 kept round 1", "Store parameter 0 kept gradient"});
  expect({"Fetch parameter 0 kept gradient with contents", "Await parameter 0 kept gradient",
          "Update parameter 0 kept round 1", "Store parameter 0 kept gradient"});
  expect({"Fetch parameter 1 gradient with contents", "Await parameter 1 gradient", "SumReplicas parameter 1"});
  expect({"Fetch parameter 1 gradient with contents", "Await parameter 1 gradient", "Fetch parameter 1 kept gradient",
          "Await parameter 1 kept gradient", "Keep parameter 1", "Store parameter 1 gradient",
          "Store parameter 1 kept gradient changed"});
  // What no other stage holds is still here.
  expect({"FinishGradient parameter 0", "SquareGradient parameter 0", "Fetch parameter 0 kept gradient",
          "Await parameter 0 kept gradient", "Keep parameter 0", "Store parameter 0 gradient",
          "Store parameter 0 kept gradient changed"});
}

TEST_CASE("a program whose updates and kept gradients do not belong together is refused") {
  const LayerOptions layers = delayed_layers();
  const Program whole = one_rank(layers);
  const std::size_t norm = place_of(whole, "Norm");
  Program program = whole;
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(norm) - 1);
  refuses(program, layers, "parameter 1 is updated by what no step kept");
  refuses(moved(whole, "Keep parameter 0", place_of(whole, "SquareGradient parameter 0")), layers,
          "a gradient is kept once, after it is squared");
  refuses(moved(whole, "Backward 0.0 layer 0", place_of(whole, "Publish parameter 1")), layers,
          "computes with parameter 0 after its update");
  program = moved(whole, "Publish parameter 0", norm);
  refuses(program, layers, "a gradient is kept before the update has taken the one");
  program = whole;
  program[place_of(whole, "Update parameter 1 kept round 1")].by = UpdatedBy::ThisStep;
  refuses(program, layers, "updated before the norm is known");

  LayerOptions plain = layers;
  plain.policy = config::StepPolicy::Plain;
  program = one_rank(plain);
  program[place_of(program, "Update parameter 0 round 0")].by = UpdatedBy::Kept;
  refuses(program, plain, "a kept gradient is taken after the norm");
  program = one_rank(plain);
  program.push_back({.op = Op::Keep, .flat_parameter = 0});
  refuses(program, plain, "parameter 0 keeps a gradient that no update takes");
}
