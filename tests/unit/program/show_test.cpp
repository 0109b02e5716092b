// What `strata schedule show` writes.
#include <strata/error.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "cli/schedule_command.hpp"
#include "fixture.hpp"
#include "one_forward_one_backward.hpp"
#include "sequential.hpp"

using namespace strata;
using cli::ScheduleFormat;

namespace {

std::string show(const Scheduler& scheduler, const PipelineShape& shape, ScheduleFormat format) {
  std::ostringstream out;
  CHECK(cli::schedule_show("mine", scheduler, shape, {}, format, out) == 0);
  return out.str();
}

int count_of(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the terminal's picture") {
  const std::string text = show(OneForwardOneBackward(), {2, 1, 3}, ScheduleFormat::Text);
  INFO(text);
  CHECK_THAT(text, Catch::Contains("mine: 2 stages of 1 chunk, 3 micro-batches; forward 1, backward 2"));
  CHECK_THAT(text, Catch::Contains("stage 0 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"));
  CHECK_THAT(text, Catch::Contains("stage 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"));
  CHECK_THAT(text, Catch::Contains("makespan 12, bubble 25.0 %"));
  CHECK_THAT(show(Sequential(), {2, 2, 1}, ScheduleFormat::Text), Catch::Contains("F0.0") && Catch::Contains("F2.0"));
}

TEST_CASE("the picture in a file has every action") {
  const std::string svg = show(OneForwardOneBackward(), {4, 1, 8}, ScheduleFormat::Svg);
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count_of(svg, "<g>") == 4 * 8 * 2);
  CHECK(count_of(svg, "<g>") == count_of(svg, "</g>"));
  CHECK_THAT(svg, Catch::Contains("<title>B3.7 from "));
}

TEST_CASE("the same for programs") {
  const auto document = nlohmann::json::parse(show(OneForwardOneBackward(), {4, 1, 8}, ScheduleFormat::Json));
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
  std::ostringstream out;
  CHECK_THROWS_AS(cli::schedule_show("mine", OneForwardOneBackward(), {2, 3, 2}, {}, ScheduleFormat::Text, out),
                  UserError);
  CHECK_THROWS_AS(cli::schedule_show("mine", OneForwardOneBackward(), {-2, 1, 2}, {}, ScheduleFormat::Text, out),
                  UserError);
  CHECK(out.str().empty());
}
