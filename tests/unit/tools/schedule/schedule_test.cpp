// What `strata schedule show` writes.
#include <strata/error.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "tools/schedule/run_schedule.hpp"
#include "tools/schedule/schedule.hpp"
#include "unit/program/schedulers.hpp"

using namespace strata;

namespace {

std::string show(const Scheduler& scheduler, const PipelineShape& shape, const std::string& format) {
  std::ostringstream out;
  CHECK(schedule::schedule_show({{"mine", scheduler, shape.chunks_per_stage}}, shape.stages, shape.micro_batches, {},
                                format, out) == 0);
  return out.str();
}

int count_of(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the terminal's picture") {
  const std::string text = show(*make_scheduler("1f1b"), {2, 1, 3}, "text");
  INFO(text);
  CHECK_THAT(text, Catch::Contains("mine: 2 stages of 1 chunk, 3 micro-batches; forward 1, backward 2"));
  CHECK_THAT(text, Catch::Contains("stage 0 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"));
  CHECK_THAT(text, Catch::Contains("stage 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"));
  CHECK_THAT(text, Catch::Contains("makespan 12, bubble 25.0 %"));
  CHECK_THAT(show(*make_scheduler("sequential"), {2, 2, 1}, "text"),
             Catch::Contains("F0.0") && Catch::Contains("F2.0"));
}

TEST_CASE("updates within the step follow their passes, and weights are named") {
  const std::string text = show(*make_scheduler("pipedream"), {2, 1, 3}, "text");
  INFO(text);
  CHECK_THAT(text, Catch::Contains("stage 0 | F0   F1   .    .    B0   --U  F2@1 B1   --U  .    B2@1 --U\n"));
  CHECK_THAT(text, Catch::Contains("stage 1 | .    F0   B0   --U  F1@1 B1@1 --U  F2@2 B2@2 --U  .    .\n"));
  CHECK_THAT(text, Catch::Contains("makespan 12, bubble 25.0 %"));
  const std::string svg = show(*make_scheduler("pipedream"), {2, 1, 3}, "svg");
  CHECK(count_of(svg, "<g>") == 2 * 3 * 3);
  CHECK_THAT(svg, Catch::Contains("<title>U1.2 from 10 to 10</title>"));
}

TEST_CASE("the picture in a file has every action") {
  const std::string svg = show(*make_scheduler("1f1b"), {4, 1, 8}, "svg");
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count_of(svg, "<g>") == 4 * 8 * 2);
  CHECK(count_of(svg, "<g>") == count_of(svg, "</g>"));
  CHECK_THAT(svg, Catch::Contains("<title>B3.7 from "));
}

TEST_CASE("several schedules of the same work are compared in a table") {
  const auto plain = make_scheduler("1f1b"), interleaved = make_scheduler("interleaved_1f1b"),
             sequential = make_scheduler("sequential");
  const auto shown = [&](const std::string& format) {
    std::ostringstream out;
    CHECK(
        schedule::schedule_show({{"1f1b", *plain, 1}, {"interleaved", *interleaved, 2}, {"sequential", *sequential, 3}},
                                4, 8, {2, 2, 2, 0}, format, out) == 0);
    return out.str();
  };
  const std::string text = shown("text");
  INFO(text);
  // (p - 1)(F + B) = 18, half of it where a stage is two chunks, and 32 passes of 6 one after the other.
  CHECK_THAT(text,
             Catch::Contains(
                 "1f1b                     1         66    27.3 %       27.3 %         18          18          4\n"));
  CHECK_THAT(text, Catch::Contains("interleaved              2         57    15.8 %       15.8 %          9"));
  CHECK_THAT(text, Catch::Contains("sequential               3        192    75.0 %       75.0 %        144"));
  const auto document = nlohmann::json::parse(shown("json"));
  REQUIRE(document.size() == 3);
  CHECK(document.at(0).at("speculative").at("step") == 66 * 6);
  const auto trace = nlohmann::json::parse(shown("trace"));
  const auto busy_in = [&](int process) {
    std::int64_t busy = 0;
    for (const auto& event : trace.at("traceEvents"))
      if (event.at("ph") == "X" && event.at("pid") == process && event.at("tid") == 0)
        busy += event.at("dur").get<std::int64_t>();
    return busy;
  };
  for (int process = 0; process < 3; ++process) CHECK(busy_in(process) == 48 * 6);
  CHECK(document.at(0).at("per_stage").at(0).at("inner_idle") == 18 * 6);
  const std::string svg = shown("svg");
  CHECK(count_of(svg, "<svg ") == 4);
  CHECK(count_of(svg, "</svg>") == 4);
}

TEST_CASE("schedules of a run have its layers, and the activations that its stages hold") {
  std::vector<LayerCost> layers(6, {100, 1'000'000, 1'000'000, 1'000'000, 3 << 20, 1});
  layers.back().forward_time = 2'000'000;  // a pass of the last stage takes 10, of the first 9
  const auto scheduler = make_scheduler("1f1b");
  const schedule::RunSchedule schedule{"1f1b", program::plan_step("scheduler/1f1b", *scheduler, {2, 1, 4}, layers)};
  const auto shown = [&](const std::string& format) {
    std::ostringstream out;
    CHECK(schedule::show_schedules_of_run({schedule}, /*measured=*/false, format, out) == 0);
    return out.str();
  };
  // 3 before the last stage begins, 40 of it, 6 after its last.
  CHECK_THAT(shown("text"),
             Catch::Contains("1f1b: 2 stages x 1 chunks, 4 micro-batches, 6 layers\n") &&
                 Catch::Contains("      0  0-2       73.5 %    26.5 %    26.5 %          2    18.00 MiB\n") &&
                 Catch::Contains("      1  3-5       81.6 %    18.4 %     0.0 %          1     9.00 MiB\n"));
  const auto document = nlohmann::json::parse(shown("json"));
  CHECK(document.at("makespan") == 49'000'000);
  CHECK(document.at("per_stage").at(0).at("activation_bytes") == 18 << 20);
  CHECK(document.at("layers_of_chunk").at(1).at(1) == 6);
  CHECK(count_of(shown("svg"), "<svg ") == 1);
}

TEST_CASE("the same for programs") {
  const auto document = nlohmann::json::parse(show(*make_scheduler("1f1b"), {4, 1, 8}, "json"));
  CHECK(document.at("scheduler") == "mine");
  CHECK(document.at("stages") == 4);
  CHECK(document.at("makespan") == (8 + 3) * 3);
  CHECK(document.at("bubble").get<double>() == Approx(3.0 / 11.0));
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(document.at("per_stage").at(static_cast<std::size_t>(stage)).at("peak_live") == 4 - stage);
    CHECK(document.at("per_stage").at(static_cast<std::size_t>(stage)).at("actions").size() == 16);
  }
}

TEST_CASE("a shape that the schedule does not have is an error, not a picture") {
  const auto scheduler = make_scheduler("1f1b");
  std::ostringstream out;
  CHECK_THROWS_AS(schedule::schedule_show({{"mine", *scheduler, 3}}, 2, 2, {}, "text", out), UserError);
  CHECK_THROWS_AS(schedule::schedule_show({{"mine", *scheduler, 1}}, -2, 2, {}, "text", out), UserError);
  CHECK(out.str().empty());
}

TEST_CASE("an impossible diagram is refused, one too wide is reported") {
  const auto scheduler = make_scheduler("1f1b");
  std::ostringstream out;
  const auto show_with = [&](const PipelineShape& shape, const program::ChunkCost& cost) {
    return schedule::schedule_show({{"1f1b", *scheduler, shape.chunks_per_stage}}, shape.stages, shape.micro_batches,
                                   cost, "text", out);
  };
  CHECK_THROWS_WITH(show_with({1 << 20, 1 << 20, 1 << 20}, {}), Catch::Contains("product at most"));
  CHECK_THROWS_WITH(show_with({2, 1, 100'000}, {}), Catch::Contains("product at most"));
  CHECK(out.str().empty());
  CHECK(show_with({2, 1, 3}, {1'000'000'000, 1, 1, 0}) == 0);
  CHECK_THAT(out.str(), Catch::Contains("too many columns") && Catch::Contains("makespan 4000000008"));
}

TEST_CASE("a schedule that can look ahead shows the time of a speculative step") {
  const auto scheduler = make_scheduler("zero_bubble_v");
  CHECK_THAT(show(*scheduler, {4, 2, 8}, "text"),
             Catch::Contains("makespan 51, bubble 5.9 % of all stages' time\n"
                             "with step_policy: speculative, a step after another takes 48, bubble 0.0 %\n"));
}
