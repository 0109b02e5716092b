#include "tools/compare/comparison.hpp"

#include <cmath>
#include <functional>
#include <sstream>

#include "catch.hpp"
#include "tools/compare/comparison_page.hpp"
#include "tools/compare/variants.hpp"

using namespace strata::compare;
using namespace strata::text;

namespace {

// Four steps of three parameters, with everything that a recorded run's summary has.
ComparedVariant variant(const std::string& name) {
  ComparedVariant made;
  made.name = name;
  made.losses = {5.0, 4.0, 3.0, 2.0};
  made.norms = {1.0, 1.0, 1.0, 1.0};
  for (int step = 0; step < 4; ++step)
    made.gradients.push_back({{"a", {0.5, 1.0}}, {"b", {-0.25, 2.0}}, {"c", {0.125, 0.5}}});
  made.step_seconds = std::vector<double>(10, 0.1);
  made.summary =
      nlohmann::json::parse(R"({"steps": 4, "median_step_s": 0.1, "tokens_per_s": 1000, "cpu_use": [0.5, 0.75],
      "memory": [{"peak_bytes": {"device": {"parameter": 1024}}, "total_peak_bytes": [1024, 0, 0], "peak_rss_mib": 100},
                 {"peak_bytes": {"device": {"parameter": 2048}, "host": {"optimizer": 512}}, "total_peak_bytes": [2048, 512, 0], "peak_rss_mib": 90}],
      "sent": [{"total": 400}, {"total": 800}], "plugin_metrics": {"loss scale": {"value": 8, "unit": ""}}})");
  return made;
}

std::string text_of(const ComparedVariant& changed, double tolerance = 1e-5) {
  return to_string(difference(changed, variant("baseline"), tolerance));
}

}  // namespace

TEST_CASE("a comparison's verdicts about two runs' numbers") {
  ComparedVariant other = variant("other");
  CHECK(text_of(other) == "equal bits");

  SECTION("closer than the tolerance") {
    other.losses[2] *= 1.0 + 1e-7;
    CHECK(text_of(other) == "equal to 1.0e-07");
    CHECK(text_of(other, 1e-8) == "differ from step 3, by up to 1.0e-07");
  }
  SECTION("the first step counts, the largest difference is said") {
    other.norms[1] = 1.001;
    other.losses[3] = 2.2;
    CHECK(text_of(other) == "differ from step 2, by up to 1.0e-01");
  }
  SECTION("a gradient in the first step, where weights are equal") {
    other.gradients[0]["b"].projection += 2e-4;
    CHECK(text_of(other) == "the gradient of b differs from step 1, by 1.0e-04 of its norm");
  }
  SECTION("later only a gradient that is off much further than the middle one") {
    for (auto& [name, sums] : other.gradients[2]) sums.projection += 1e-4 * sums.norm;
    CHECK(text_of(other) == "equal to 0.0e+00");
    other.gradients[2]["c"].projection += 0.05 * 0.5;
    CHECK(text_of(other).starts_with("the gradient of c differs from step 3, by 5."));
  }
  SECTION("numbers that are not finite") {
    other.losses[1] = NAN;
    CHECK(text_of(other) == "differ from step 2, by up to inf");
    ComparedVariant baseline = variant("baseline");
    baseline.losses[1] = NAN;
    CHECK(to_string(difference(other, baseline, 1e-5)) == "equal bits");
    other.gradients[0]["a"].projection = NAN;
    CHECK(text_of(other).starts_with("the gradient of a differs from step 1"));
  }
}

TEST_CASE("a comparison's table, page and JSON") {
  Comparison comparison;
  comparison.variants = {variant("partitioner.plugin=<first>"), variant("second")};
  comparison.variants[1].step_seconds = std::vector<double>(10, 0.2);
  comparison.steps = 4;
  comparison.tolerance = 1e-5;
  const Table people = comparison_table(comparison, TableFormat::Text);
  REQUIRE(people.columns.size() == 3);
  const auto cell = [&](const std::string& name) {
    for (const auto& row : people.rows)
      if (row[0] == name) return row[2];
    return std::string("no such row: " + name);
  };
  CHECK(cell("time / baseline") == "2.000");
  CHECK(cell("verdict") == "slower by 100.0 %");
  CHECK(cell("tokens/s") == "500");
  CHECK(cell("peak parameter") == "2.00 KiB");
  CHECK(cell("peak optimizer (host)") == "512 B");
  CHECK(cell("peak total") == "2.50 KiB");
  CHECK(cell("CPU %") == "75");
  CHECK(cell("sent a step") == "200 B");
  CHECK(cell("loss scale") == "8");
  CHECK(cell("numbers") == "equal bits");

  const Table lines = comparison_table(comparison, TableFormat::Csv);
  CHECK(lines.rows.size() == 2);
  CHECK(lines.rows[0].size() == lines.columns.size());

  comparison.provenance = {"0.1.0, commit 1a2b", "2026-01-31 12:00 UTC", "strata compare a.yaml", "a machine"};
  for (ComparedVariant& each : comparison.variants) {
    each.config = "configs/a.yaml";
    each.settings = {"partitioner.plugin=/build/libmine.so"};
    each.summary["setup"] = {{"model", "gpt_neox"}, {"world_size", "2"}};
  }
  std::ostringstream page;
  print_page(comparison, page);
  for (const char* const said : {"0.1.0, commit 1a2b", "2026-01-31 12:00 UTC", "strata compare a.yaml", "a machine",
                                 "configs/a.yaml", "partitioner.plugin=/build/libmine.so", "model gpt_neox",
                                 "world_size 2", ">loss</text>", ">2</text>", ">5</text>"})
    CHECK_THAT(page.str(), Catch::Contains(said));
  CHECK(page.str().find("&lt;first&gt;") != std::string::npos);
  CHECK(page.str().find("<first>") == std::string::npos);

  const nlohmann::json written = to_json(comparison);
  CHECK(written["variants"][1]["ratio"]["verdict"] == "slower by 100.0 %");
  CHECK(written["variants"][0].contains("ratio") == false);
  CHECK(written["strata"] == "0.1.0, commit 1a2b");
  CHECK(written["command"] == "strata compare a.yaml");
  CHECK(written["variants"][1]["setup"]["world_size"] == "2");
  CHECK(written["variants"][1]["settings"] == nlohmann::json{"partitioner.plugin=/build/libmine.so"});

  CHECK(cell("99 % interval") == "2.000 to 2.000");
}

TEST_CASE("short and long times have four digits in a table, and all in CSV") {
  Comparison comparison;
  comparison.variants = {variant("first"), variant("second")};
  comparison.variants[0].step_seconds = {0.00384567};
  comparison.variants[1].step_seconds = {12.34567};
  const Table people = comparison_table(comparison, TableFormat::Text);
  CHECK(people.rows[0] == std::vector<std::string>{"step s", "0.003846", "12.35"});
  const Table lines = comparison_table(comparison, TableFormat::Csv);
  CHECK(std::stod(lines.rows[0][1]) == 0.00384567);
}

TEST_CASE("headings shorten plugin files to distinct names") {
  using strata::compare::short_names;
  using Names = std::vector<std::string>;
  CHECK(short_names({"partitioner.plugin=zero3", "partitioner.plugin=/home/me/build/libmine.so"}) ==
        Names{"partitioner.plugin=zero3", "partitioner.plugin=mine"});
  CHECK(short_names({"a=/x/libstrata_scheduler_mine.so b=1", "a=/y/libmine.so b=1"}) ==
        Names{"a=x/mine b=1", "a=y/mine b=1"});
  CHECK(short_names({"/runs/old/run.yaml", "/runs/new/run.yaml"}) == Names{"old/run.yaml", "new/run.yaml"});
  CHECK(short_names({"a=1", "a=1"}) == Names{"a=1", "a=1"});
}

TEST_CASE("a comparison of too few runs for a verdict") {
  Comparison comparison;
  comparison.variants = {variant("first"), variant("second")};
  comparison.variants[1].step_seconds = std::vector<double>(7, 0.3);
  comparison.variants[0].step_seconds.resize(7);
  const auto rows = [&] {
    std::map<std::string, std::string> named;
    for (const auto& row : comparison_table(comparison, TableFormat::Text).rows) named[row[0]] = row[2];
    return named;
  };
  CHECK(rows().at("verdict") == "none without --thorough");
  CHECK(rows().at("time / baseline") == "3.000");
  CHECK_FALSE(rows().contains("99 % interval"));
  CHECK(rows().contains("range of runs"));

  for (ComparedVariant& each : comparison.variants) each.step_seconds.resize(1);
  comparison.variants[1].ratios = {2.5};  // of the medians over steps, which a slow step moves less
  CHECK(rows().at("time / baseline") == "2.500");
  CHECK_FALSE(rows().contains("range of runs"));
  CHECK_THAT(account_of_times(comparison), Catch::StartsWith("a first look"));
}

TEST_CASE("numbers outside the bounds that a variant's plugins declare") {
  const ComparedVariant baseline = variant("baseline");
  ComparedVariant other = variant("other");
  const auto breaks = [&](double bound) {
    other.promise = Promise{bound, "partitioner/p declares something"};
    return breaks_promise(other, baseline);
  };
  CHECK_FALSE(breaks(0.0));
  other.losses[3] *= 1.0 + 5e-4;  // weights have drifted apart
  CHECK(breaks(0.0));
  CHECK_FALSE(breaks(1e-5));
  CHECK(breaks(1e-6));
  other.losses[0] *= 1.0 + 2e-5;  // of equal weights
  CHECK(breaks(1e-5));
  CHECK_FALSE(breaks(1e-4));
  other.gradients[2]["c"].projection += 0.05 * 0.5;
  CHECK(breaks(1e-4));
  other.promise->of_gradients = false;
  CHECK_FALSE(breaks_promise(other, baseline));
  CHECK(difference(other, baseline, 1e-3).parameter.empty());
  other.promise.reset();
  CHECK_FALSE(breaks_promise(other, baseline));

  Comparison comparison;
  comparison.variants = {baseline, other};
  comparison.tolerance = 1e-5;
  comparison.variants[1].promise = Promise{1e-5, "partitioner/p declares reassociation"};
  const Table table = comparison_table(comparison, TableFormat::Csv);
  CHECK_THAT(table.rows[1].back(), Catch::EndsWith(", though partitioner/p declares reassociation"));
  CHECK(to_json(comparison)["variants"][1]["breaks_promise"] == true);
}

TEST_CASE("memory that grows all the time is told from memory that grows once") {
  const double mebibyte = 0x1p20;
  const auto growth = [&](const std::function<double(int step)>& bytes, int steps = 130) {
    ComparedVariant made = variant("grows");
    for (int step = 0; step < steps; ++step) made.resident.push_back({100 * mebibyte, 50 * mebibyte + bytes(step)});
    return growth_of_memory(made);
  };
  CHECK(growth([](int) { return 0.0; }) == 0.0);
  // Allocators and caches that fill in the first 50 steps, as seen in every run.
  CHECK(growth([&](int step) { return std::min(step, 50) * 67.55 * 1024; }) == 0.0);
  CHECK(growth([&](int step) { return step * mebibyte; }, 23) == 0.0);  // too few to tell
  CHECK(growth([&](int step) { return step < 80 ? 0.0 : 20 * mebibyte; }) == 0.0);
  CHECK(growth([&](int step) { return (step % 2) * 8 * mebibyte; }) == 0.0);
  CHECK(growth([&](int step) { return step * 8.0 * 1024; }) == 0.0);
  CHECK(growth([&](int step) { return step * 0.25 * mebibyte; }) == Approx(0.25 * mebibyte));
  CHECK(growth([&](int step) { return step * mebibyte + (step % 2) * 0.5 * mebibyte; }) ==
        Approx(mebibyte).epsilon(0.1));
  CHECK(growth_of_memory(variant("of no steps")) == 0.0);
}
