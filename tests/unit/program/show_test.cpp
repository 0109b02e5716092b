// What `strata schedule show` writes.
#include <strata/error.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "cli/schedule_command.hpp"
#include "fixture.hpp"

using namespace strata;

namespace {

std::string show(const Scheduler& scheduler, const PipelineShape& shape, const std::string& format) {
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
  const std::string text = show(*make_scheduler("1f1b"), {2, 1, 3}, "text");
  INFO(text);
  CHECK_THAT(text, Catch::Contains("mine: 2 stages of 1 chunk, 3 micro-batches; forward 1, backward 2"));
  CHECK_THAT(text, Catch::Contains("stage 0 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"));
  CHECK_THAT(text, Catch::Contains("stage 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n"));
  CHECK_THAT(text, Catch::Contains("makespan 12, bubble 25.0 %"));
  CHECK_THAT(show(*make_scheduler("sequential"), {2, 2, 1}, "text"),
             Catch::Contains("F0.0") && Catch::Contains("F2.0"));
}

TEST_CASE("the picture in a file has every action") {
  const std::string svg = show(*make_scheduler("1f1b"), {4, 1, 8}, "svg");
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count_of(svg, "<g>") == 4 * 8 * 2);
  CHECK(count_of(svg, "<g>") == count_of(svg, "</g>"));
  CHECK_THAT(svg, Catch::Contains("<title>B3.7 from "));
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
  std::ostringstream out;
  CHECK_THROWS_AS(cli::schedule_show("mine", *make_scheduler("1f1b"), {2, 3, 2}, {}, "text", out), UserError);
  CHECK_THROWS_AS(cli::schedule_show("mine", *make_scheduler("1f1b"), {-2, 1, 2}, {}, "text", out), UserError);
  CHECK(out.str().empty());
}

TEST_CASE("the command makes the scheduler and checks what it was asked") {
  plugin_host::PluginRegistry registry(std::vector<strata::plugin_host::SearchFolder>{{PLUGIN_FOLDER, "the test"}});
  cli::ScheduleArguments arguments;
  arguments.scheduler = "1f1b";
  arguments.shape = {2, 1, 3};
  std::ostringstream out;
  CHECK(cli::schedule_command(arguments, registry, out) == 0);
  CHECK_THAT(out.str(), Catch::StartsWith("scheduler/1f1b: 2 stages"));
  const auto error_of = [&](const cli::ScheduleArguments& wrong) -> std::string {
    std::ostringstream nothing;
    try {
      cli::schedule_command(wrong, registry, nothing);
    } catch (const UserError& error) {
      return nothing.str() + error.what();
    }
    return "no error";
  };
  cli::ScheduleArguments wrong = arguments;
  wrong.scheduler = "1f1";
  CHECK_THAT(error_of(wrong), Catch::Contains("1f1b"));
  wrong = arguments;
  wrong.format = "png";
  CHECK_THAT(error_of(wrong), Catch::StartsWith("format is \"png\""));
  wrong = arguments;
  wrong.settings = {"chunks=2"};
  CHECK_THAT(error_of(wrong),
             Catch::Contains("sets no option of scheduler/1f1b") && Catch::Contains("it has no options"));
  wrong = arguments;
  wrong.shape = {1 << 20, 1 << 20, 1 << 20};
  CHECK_THAT(error_of(wrong), Catch::Contains("product at most"));
  wrong = arguments;
  wrong.cost.forward = -1;
  CHECK_THAT(error_of(wrong), Catch::Contains("a cost is -1"));
  wrong = arguments;
  wrong.cost.forward = 1'000'000'000;
  std::ostringstream wide;
  CHECK(cli::schedule_command(wrong, registry, wide) == 0);
  CHECK_THAT(wide.str(), Catch::Contains("too many columns"));
}
