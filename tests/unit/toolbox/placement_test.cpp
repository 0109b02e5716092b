// Cutting layers into chunks, and the text form of compute actions.
#include <strata/error.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "catch.hpp"

using namespace strata;
using Runs = std::vector<std::pair<int, int>>;

namespace {

std::int64_t weight_of(const std::vector<std::int64_t>& weights, std::pair<int, int> run) {
  return std::accumulate(weights.begin() + run.first, weights.begin() + run.second, std::int64_t{0});
}

std::pair<std::int64_t, std::int64_t> heaviest_and_lightest(const std::vector<std::int64_t>& weights,
                                                            const Runs& runs) {
  std::vector<std::int64_t> sums;
  for (const auto& run : runs) sums.push_back(weight_of(weights, run));
  return {*std::max_element(sums.begin(), sums.end()), *std::min_element(sums.begin(), sums.end())};
}

// Tries every cut.
std::pair<std::int64_t, std::int64_t> best_by_trying(const std::vector<std::int64_t>& weights, int parts) {
  const int layers = static_cast<int>(weights.size());
  std::pair<std::int64_t, std::int64_t> best{-1, -1};
  Runs runs;
  const std::function<void(int)> extend = [&](int begin) {
    if (static_cast<int>(runs.size()) == parts - 1) {
      if (begin >= layers) return;
      runs.emplace_back(begin, layers);
      const auto found = heaviest_and_lightest(weights, runs);
      if (best.first < 0 || found.first < best.first || (found.first == best.first && found.second > best.second))
        best = found;
      runs.pop_back();
      return;
    }
    for (int end = begin + 1; end < layers; ++end) {
      runs.emplace_back(begin, end);
      extend(end);
      runs.pop_back();
    }
  };
  extend(0);
  return best;
}

}  // namespace

TEST_CASE("split_by_weight finds the best of all cuts") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> weights(1 + random() % 9);
    for (auto& weight : weights) weight = static_cast<std::int64_t>(random() % 6);  // zeros too
    for (int parts = 1; parts <= static_cast<int>(weights.size()); ++parts) {
      const Runs runs = toolbox::split_by_weight(weights, parts);
      REQUIRE(static_cast<int>(runs.size()) == parts);
      int next = 0;
      for (const auto& [begin, end] : runs) {
        REQUIRE(begin == next);
        REQUIRE(end > begin);
        next = end;
      }
      REQUIRE(next == static_cast<int>(weights.size()));
      REQUIRE(heaviest_and_lightest(weights, runs) == best_by_trying(weights, parts));
    }
  }
}

TEST_CASE("equal layers are spread with the shorter runs first") {
  CHECK(toolbox::split_by_weight(std::vector<std::int64_t>(10, 5), 4) == Runs{{0, 2}, {2, 4}, {4, 7}, {7, 10}});
  CHECK(toolbox::split_evenly(10, 4) == Runs{{0, 2}, {2, 4}, {4, 7}, {7, 10}});
  CHECK(toolbox::split_evenly(3, 3) == Runs{{0, 1}, {1, 2}, {2, 3}});
  CHECK(toolbox::split_by_weight({1LL << 60, 1, 1LL << 60}, 2) == Runs{{0, 1}, {1, 3}});
}

TEST_CASE("fewer layers than chunks is the user's error") {
  CHECK_THROWS_AS(toolbox::split_evenly(2, 3), UserError);
  CHECK_THROWS_AS(toolbox::split_evenly(0, 1), UserError);
  CHECK_THROWS_AS(toolbox::split_by_weight({}, 1), UserError);
  CHECK_THROWS_AS(toolbox::split_by_weight({1, 2}, 0), UserError);
  CHECK_THROWS_WITH(toolbox::place_in_turn({{1, 1, 1, 1}, {1, 1, 1, 1}}, {2, 2, 1}),
                    Catch::Contains("2 layers") && Catch::Contains("4 chunks") && Catch::Contains("use at most 2"));
}

TEST_CASE("place_in_turn gives each stage every p-th chunk") {
  const std::vector<LayerCost> layers(9, {10, 1, 1, 1, 4, 10});
  const Placement placement = toolbox::place_in_turn(layers, {2, 2, 4});
  CHECK(placement.stage_of_chunk == std::vector<int>{0, 1, 0, 1});
  CHECK(placement.layers_of_chunk == Runs{{0, 2}, {2, 4}, {4, 6}, {6, 9}});
}

TEST_CASE("layers are cut by weight, or as the config says") {
  std::vector<LayerCost> layers(6);
  layers.back().weight = 4;
  for (LayerCost& layer : layers) layer.weight += 1;
  CHECK(toolbox::place_in_turn(layers, {2, 1, 1}).layers_of_chunk == Runs{{0, 5}, {5, 6}});
  CHECK(toolbox::place_in_turn(layers, {2, 1, 1, {2, 4}}).layers_of_chunk == Runs{{0, 2}, {2, 6}});
  const Placement v = toolbox::place_in_a_v(layers, {2, 2, 1, {1, 2, 2, 1}});
  CHECK(v.layers_of_chunk == Runs{{0, 1}, {1, 3}, {3, 5}, {5, 6}});
  CHECK(v.stage_of_chunk == std::vector<int>{0, 1, 1, 0});
}

TEST_CASE("stages of several chunks have about equal weights, with any layer weights") {
  std::vector<LayerCost> layers(14);  // an embedding, twelve blocks, a head of five
  for (std::size_t i = 1; i < 13; ++i) layers[i].weight = 1;
  layers[13].weight = 5;
  const auto loads = [&](const Placement& placement) {
    std::vector<std::int64_t> of_stage(4, 0);
    for (std::size_t chunk = 0; chunk < 8; ++chunk)
      for (int layer = placement.layers_of_chunk[chunk].first; layer < placement.layers_of_chunk[chunk].second; ++layer)
        of_stage[static_cast<std::size_t>(placement.stage_of_chunk[chunk])] +=
            layers[static_cast<std::size_t>(layer)].weight;
    return of_stage;
  };
  const std::vector<std::int64_t> in_a_v = loads(toolbox::place_in_a_v(layers, {4, 2, 8}));
  CHECK(in_a_v == std::vector<std::int64_t>{5, 4, 4, 4});
  const std::vector<std::int64_t> in_turn = loads(toolbox::place_in_turn(layers, {4, 2, 8}));
  CHECK(std::ranges::max(in_turn) == 6);  // the last stage has two chunks, of which one is the head
  CHECK(std::ranges::min(in_turn) >= 3);
}

TEST_CASE("compute actions survive the way to text and back") {
  for (const ComputeKind kind : {ComputeKind::Forward, ComputeKind::Backward, ComputeKind::BackwardInput,
                                 ComputeKind::BackwardWeight, ComputeKind::Update}) {
    for (const int chunk : {0, 3, 127}) {
      for (const int micro_batch : {0, 10, 4096}) {
        for (const int version : {0, 1, 12}) {
          const ComputeAction action{kind, chunk, micro_batch, version};
          CHECK(parse_compute_action(to_string(action)) == action);
        }
      }
    }
  }
  CHECK(to_string(ComputeAction{ComputeKind::BackwardInput, 1, 2}) == "I1.2");
  CHECK(to_string(ComputeAction{ComputeKind::Forward, 0, 2, 1}) == "F0.2@1");
  CHECK(parse_compute_order(" F0.0\n  B0.0\t") ==
        std::vector<ComputeAction>{{ComputeKind::Forward, 0, 0}, {ComputeKind::Backward, 0, 0}});
  CHECK(parse_compute_order("").empty());
  for (const char* text : {"", "F", "F0", "F0.", "F.1", "f0.1", "X0.1", "F0.1 ", "F-1.0", "F0.-1", "F0.1@", "F0.1@x",
                           "F0.1@1@1", "F99999999999.0", "F0.1extra", "F+1.0"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_compute_action(text), UserError);
  }
  CHECK_THROWS_WITH(parse_compute_order("F0.0 nonsense B0.0"), Catch::Contains("'nonsense'"));
}
