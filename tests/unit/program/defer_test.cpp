// Updates that stand before their parameter's first use in the next step.
#include <strata/error.hpp>

#include "catch.hpp"
#include "one_rank.hpp"
#include "program/passes.hpp"

using namespace strata;
using namespace strata::program;
using Catch::Contains;

namespace {

LayerOptions deferred_layers() {
  LayerOptions layers = plain_layers(2);
  layers.defers_updates = true;
  return layers;
}

}  // namespace

TEST_CASE("a deferred update stands before its parameter's first use, read line by line") {
  const LayerOptions layers = deferred_layers();
  CHECK(to_text(one_rank(layers)) ==
        std::vector<std::string>{
            "Update parameter 0 late round 0", "Publish parameter 0 late", "Forward 0.0 layer 0",
            "Update parameter 1 late round 0", "Publish parameter 1 late", "Forward 0.0 layer 1",
            "BorrowGradient parameter 1 micro-batch 0 first last", "Backward 0.0 layer 1",
            "Reduce parameter 1 micro-batch 0 first last", "BorrowGradient parameter 0 micro-batch 0 first last",
            "Backward 0.0 layer 0", "Reduce parameter 0 micro-batch 0 first last", "FinishGradient parameter 1",
            "FinishGradient parameter 0", "SquareGradient parameter 0", "SquareGradient parameter 1", "Norm"});
  CHECK(to_text(lower_pending_updates(one_stage(), layers, {.resident = true}, 0)) ==
        std::vector<std::string>{"Update parameter 0 round 0", "Publish parameter 0", "Update parameter 1 round 0",
                                 "Publish parameter 1"});
}

TEST_CASE("deferred updates with sums stand together before everything") {
  LayerOptions layers = deferred_layers();
  layers.sums_of_round = {false, true};
  const std::vector<std::string> lines = to_text(one_rank(layers));
  const std::vector<std::string> begin{"Update parameter 0 late round 0",  "Update parameter 1 late round 0",
                                       "Measure parameter 0 late round 1", "Measure parameter 1 late round 1",
                                       "SumStatistics late round 1",       "Update parameter 0 late round 1",
                                       "Update parameter 1 late round 1",  "Publish parameter 0 late",
                                       "Publish parameter 1 late",         "Forward 0.0 layer 0"};
  CHECK(std::equal(begin.begin(), begin.end(), lines.begin()));
}

TEST_CASE("an updated parameter that rests elsewhere is gathered before it goes home") {
  LayerOptions layers = deferred_layers();
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
    parameter.values_leave = parameter.gradient_leaves = true;
    parameter.gradient_moves = parameter.parameter_moves = parameter.state_moves = 8;
  }
  const std::vector<std::string> lines = to_text(one_rank(layers, {.elements = 0, .live_parameters = 20}));
  const std::vector<std::string> expected{"Fetch parameter 0 gradient with contents",
                                          "Await parameter 0 gradient",
                                          "Fetch parameter 0 optimizer with contents",
                                          "Await parameter 0 optimizer",
                                          "Fetch parameter 0 parameter with contents",
                                          "Await parameter 0 parameter",
                                          "Update parameter 0 late round 0",
                                          "Publish parameter 0 late",
                                          "Store parameter 0 gradient",
                                          "Store parameter 0 optimizer changed",
                                          "Settle parameter 0 optimizer",
                                          "Gather parameter 0 for forward",
                                          "Store parameter 0 parameter changed",
                                          "Settle parameter 0 parameter"};
  CAPTURE(lines);
  CHECK(std::equal(expected.begin(), expected.end(), lines.begin()));
}

TEST_CASE("some of the updates end the step, and their state is fetched in the backward") {
  LayerOptions layers = deferred_layers();
  layers.updates_at_end = 0.5;
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) parameter.state_moves = 8;
  const std::vector<std::string> lines = to_text(one_rank(layers));
  const std::vector<std::string> end{"Norm",
                                     "Fetch parameter 0 optimizer with contents",
                                     "Await parameter 0 optimizer",
                                     "Update parameter 0 round 0",
                                     "Store parameter 0 optimizer changed",
                                     "Settle parameter 0 optimizer",
                                     "Publish parameter 0"};
  CAPTURE(lines);
  CHECK(lines.front() == "Forward 0.0 layer 0");
  REQUIRE(lines.size() > end.size());
  CHECK(std::equal(end.begin(), end.end(), lines.end() - static_cast<std::ptrdiff_t>(end.size())));
  CHECK(to_text(lower_pending_updates(one_stage(), layers, {.resident = true}, 0)).back() == "Publish parameter 1");
  layers.read_ahead = 8;
  const Program ahead = one_rank(layers);
  CHECK(place_of(ahead, "Fetch parameter 0 optimizer with contents") < place_of(ahead, "Backward 0.0 layer 1"));
  layers.sums_of_round = {true};  // over all: they cannot be made apart
  const Program with_sums = one_rank(layers);
  CHECK(place_of(with_sums, "Update parameter 0 late round 0") < place_of(with_sums, "Forward 0.0 layer 0"));
}

TEST_CASE("a deferred update out of its place is refused") {
  const LayerOptions layers = deferred_layers();
  const Program whole = one_rank(layers);
  refuses(moved(whole, "Publish parameter 1 late", place_of(whole, "Forward 0.0 layer 1")), layers,
          "computes with parameter 1 before the update of the step before");
  refuses(moved(whole, "Update parameter 1 late round 0", place_of(whole, "Backward 0.0 layer 1")), layers,
          "published before its last update");
  Program program = whole;
  program.erase(program.begin() + static_cast<std::ptrdiff_t>(place_of(program, "Publish parameter 0 late")));
  refuses(program, layers, "computes with parameter 0 before the update of the step before");
  program = moved(whole, "BorrowGradient parameter 0 micro-batch 0 first last", 0);
  refuses(program, layers, "the gradient that the step before left is overwritten");
}
