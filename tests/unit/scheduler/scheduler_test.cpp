#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/scheduler.hpp>

#include "catch.hpp"

using namespace strata;

namespace {

using Loaded = fakes::LoadedPlugin<Scheduler>;

Loaded scheduler(const std::string& name, const fakes::OptionTexts& options = {}) {
  return Loaded(fakes::PluginLibrary(std::string(PLUGIN_FOLDER) + "/libstrata_scheduler_" + name + ".so"), options);
}

const std::vector<LayerCost> four_layers(4, {100, 1, 1, 1, 8, 100});

}  // namespace

TEST_CASE("sequential: a micro-batch goes forward through all chunks, then back, then comes the next") {
  const Loaded sequential = scheduler("sequential");
  CHECK(sequential->order({1, 1, 2}, 0) == parse_compute_order("F0.0 B0.0 F0.1 B0.1"));
  CHECK(sequential->order({2, 2, 1}, 0) == parse_compute_order("F0.0 F2.0 B2.0 B0.0"));
  CHECK(sequential->order({2, 2, 1}, 1) == parse_compute_order("F1.0 F3.0 B3.0 B1.0"));
  const Placement placement = sequential->place(four_layers, {2, 2, 1});
  CHECK(placement.stage_of_chunk == std::vector<int>{0, 1, 0, 1});
  CHECK(placement.layers_of_chunk == std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
}

TEST_CASE("1f1b: a stage keeps as many micro-batches alive as stages come after it, and one more") {
  const Loaded one_forward_one_backward = scheduler("1f1b");
  const auto order = [&](int stages, int micro_batches, int stage) {
    return one_forward_one_backward->order({stages, 1, micro_batches}, stage);
  };
  CHECK(order(1, 2, 0) == parse_compute_order("F0.0 B0.0 F0.1 B0.1"));
  CHECK(order(3, 4, 0) == parse_compute_order("F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3"));
  CHECK(order(3, 4, 1) == parse_compute_order("F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3"));
  CHECK(order(3, 4, 2) == parse_compute_order("F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3"));
  CHECK(order(4, 2, 0) == parse_compute_order("F0.0 F0.1 B0.0 B0.1"));  // fewer micro-batches than stages
}

TEST_CASE("1f1b: several chunks a stage, and fewer layers than stages, are refused") {
  const Loaded one_forward_one_backward = scheduler("1f1b");
  CHECK_THROWS_WITH(one_forward_one_backward->order({2, 2, 4}, 0), Catch::Contains("but there are 2"));
  CHECK_THROWS_AS(one_forward_one_backward->place(four_layers, {2, 2, 4}), UserError);
  CHECK_THROWS_AS(one_forward_one_backward->place(four_layers, {5, 1, 4}), UserError);
}

TEST_CASE("pipedream: 2bw is one update late and needs as many micro-batches as stages") {
  const Loaded two_buffers = scheduler("pipedream", {{"version", "2bw"}});
  CHECK(two_buffers->order({2, 1, 6}, 1) ==
        parse_compute_order("F1.0 B1.0 F1.1 B1.1 U1.1 F1.2 B1.2 F1.3 B1.3 U1.3 F1.4@1 B1.4@1 F1.5@1 B1.5@1 U1.5"));
  CHECK_THROWS_WITH(
      two_buffers->order({4, 1, 6}, 0),
      Catch::Contains("micro_batches_per_update is 4, the number of stages, and does not divide the 6 micro-batches"));
  CHECK_THROWS_WITH(
      scheduler("pipedream", {{"version", "2bw"}, {"micro_batches_per_update", "3"}})->order({4, 1, 6}, 0),
      Catch::Contains("2bw, which needs at least 4, the number of stages"));
  CHECK(scheduler("pipedream", {{"micro_batches_per_update", "2"}})->order({1, 1, 4}, 0) ==
        parse_compute_order("F0.0 B0.0 F0.1 B0.1 U0.1 F0.2@1 B0.2@1 F0.3@1 B0.3@1 U0.3"));
}

TEST_CASE("interleaved_1f1b: groups of micro-batches pass a stage's chunks in turn") {
  const Loaded interleaved = scheduler("interleaved_1f1b");
  CHECK(interleaved->order({2, 2, 2}, 0) == parse_compute_order("F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1"));
  CHECK(interleaved->order({2, 2, 2}, 1) == parse_compute_order("F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1"));
  CHECK(interleaved->order({2, 2, 4}, 0) ==
        parse_compute_order("F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3"));
  // One chunk per stage is 1f1b.
  const Loaded plain = scheduler("1f1b");
  for (int stage = 0; stage < 3; ++stage)
    CHECK(interleaved->order({3, 1, 6}, stage)[0] == plain->order({3, 1, 6}, stage)[0]);
  const Placement placement = interleaved->place(four_layers, {2, 2, 4});
  CHECK(placement.stage_of_chunk == std::vector<int>{0, 1, 0, 1});
}

TEST_CASE("interleaved_1f1b: too few micro-batches, and groups that leave a small rest, are refused") {
  CHECK_THROWS_WITH(
      scheduler("interleaved_1f1b")->order({4, 2, 3}, 0),
      Catch::Contains(
          "4, the number of stages; 3 micro-batches per step (train.accumulation) cannot be split into such groups"));
  const auto with_group = [](const std::string& group) {
    return Loaded(fakes::PluginLibrary(std::string(PLUGIN_FOLDER) + "/libstrata_scheduler_interleaved_1f1b.so"),
                  {{"micro_batch_group", group}});
  };
  CHECK_NOTHROW(with_group("3")->order({3, 2, 6}, 0));
  for (const char* group : {"2", "4", "7"})  // below the stages; a rest of 2; above the micro-batches
    CHECK_THROWS_WITH(with_group(group)->order({3, 2, 6}, 0),
                      Catch::Contains("such groups of " + std::string(group) + " (micro_batch_group)"));
}

TEST_CASE("zero_bubble_h1: stage r puts off its first r weight gradients") {
  const Loaded zero_bubble = scheduler("zero_bubble_h1");
  CHECK(zero_bubble->order({1, 1, 2}, 0) == parse_compute_order("F0.0 I0.0 W0.0 F0.1 I0.1 W0.1"));
  CHECK(zero_bubble->order({3, 1, 4}, 0) ==
        parse_compute_order("F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3"));
  CHECK(zero_bubble->order({3, 1, 4}, 2) ==
        parse_compute_order("F2.0 I2.0 F2.1 I2.1 F2.2 I2.2 W2.0 F2.3 I2.3 W2.1 W2.2 W2.3"));
  CHECK_THROWS_WITH(zero_bubble->order({2, 2, 4}, 0), Catch::Contains("there are 2; leave parallel.chunks out"));
}

TEST_CASE("zero_bubble_v: the last chunk ends on the first stage") {
  const Loaded zero_bubble = scheduler("zero_bubble_v");
  CHECK(zero_bubble->place(four_layers, {2, 2, 4}).stage_of_chunk == std::vector<int>{0, 1, 1, 0});
  CHECK(zero_bubble->order({1, 2, 1}, 0) == parse_compute_order("F0.0 F1.0 I1.0 W1.0 I0.0 W0.0"));
  CHECK(
      zero_bubble->order({2, 2, 3}, 1) ==
      parse_compute_order("F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 I1.1 I2.2 I1.2 W1.1 W2.2 W1.2"));
  CHECK_THROWS_WITH(zero_bubble->order({2, 1, 4}, 0),
                    Catch::Contains("parallel.chunks is 1; leave it out, or use scheduler zero_bubble_h1"));
  CHECK_THROWS_AS(zero_bubble->place(four_layers, {3, 2, 4}), UserError);
}

TEST_CASE("gpipe: all forwards, then all backwards") {
  CHECK(scheduler("gpipe")->order({2, 1, 3}, 1) == parse_compute_order("F1.0 F1.1 F1.2 B1.0 B1.1 B1.2"));
  CHECK_THROWS_WITH(scheduler("gpipe")->order({2, 2, 4}, 0), Catch::Contains("there are 2; leave parallel.chunks out"));
}

TEST_CASE("dualpipe_v: forwards of one chunk are followed by backwards of the other") {
  const Loaded dual = scheduler("dualpipe_v");
  CHECK(dual->place(four_layers, {2, 2, 4}).stage_of_chunk == std::vector<int>{0, 1, 1, 0});
  CHECK(dual->order({2, 2, 4}, 0) ==
        parse_compute_order("F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3 B3.1 F3.2 B0.0 B3.2 F3.3 B0.1 B3.3 I0.2 W0.2 I0.3 "
                            "W0.3"));
  CHECK_THROWS_WITH(dual->order({2, 2, 3}, 0),
                    Catch::Contains("4 for 2 stages, and train.accumulation is 3; raise it, or use scheduler"));
}

TEST_CASE("l2l: all micro-batches pass a layer before the next one begins") {
  const Loaded l2l = scheduler("l2l");
  CHECK(l2l->chunks_per_stage(1, 4) == 4);
  CHECK(l2l->chunks_per_stage(3, 8) == 2);
  CHECK(l2l->chunks_per_stage(4, 3) == 1);
  CHECK(l2l->order({1, 3, 2}, 0) == parse_compute_order("F0.0 F0.1 F1.0 F1.1 F2.0 F2.1 B2.0 B2.1 B1.0 B1.1 B0.0 B0.1"));
  CHECK(l2l->order({2, 2, 2}, 1) == parse_compute_order("F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1"));
}

TEST_CASE("a scheduler says how many chunks a stage is to have") {
  CHECK(scheduler("1f1b")->chunks_per_stage(4, 30) == 1);
  CHECK(scheduler("zero_bubble_v")->chunks_per_stage(4, 30) == 2);
  CHECK(scheduler("dualpipe_v")->chunks_per_stage(4, 30) == 2);
  CHECK(scheduler("interleaved_1f1b")->chunks_per_stage(4, 30) == 2);
  CHECK(scheduler("interleaved_1f1b")->chunks_per_stage(4, 7) == 1);
}
