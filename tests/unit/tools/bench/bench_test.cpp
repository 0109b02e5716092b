#include "catch.hpp"
#include "tools/bench/bench_report.hpp"
#include "tools/bench/interleaved_timer.hpp"
#include "tools/bench/streams.hpp"

#include <algorithm>
#include <chrono>
#include <string>

using namespace strata::bench;

namespace {

Row timed_row() {
  Row row;
  row.name = "step";
  row.size = "1.00 MiB";
  row.floor = "one pass over 3 streams";
  row.work = 4e6;
  row.work_unit = "B";
  for (int round = 0; round < 8; ++round) {
    row.values.push_back(1e-3 * (2.0 + 0.1 * round));
    row.floor_values.push_back(1e-3);
  }
  return row;
}

}  // namespace

TEST_CASE("a plugin and its floor are timed in turns, the first of them changing from round to round") {
  std::string order;
  Settings settings;
  settings.rounds = 8;
  settings.seconds = 1e-12;  // one repetition a time
  const Row row = InterleavedTimer(settings).time({}, [&] { order += 'p'; }, {[&] { order += 'f'; }});
  CHECK(order == "ppff" + std::string("pffppffppffppffp"));
  CHECK(row.values.size() == 8);
  CHECK(row.floor_values.size() == 8);
  for (const double seconds : row.values) CHECK(seconds > 0.0);
}

TEST_CASE("short work is repeated until a time is long enough to be taken") {
  int calls = 0;
  Settings settings;
  settings.rounds = 8;
  settings.seconds = 1e-3;
  const Row row = InterleavedTimer(settings).time({}, [&] { ++calls; }, {[] {}});
  CHECK(calls > 2 + 8 * 100);
  CHECK(row.values.front() < 1e-5);
}

TEST_CASE("a bench's table has times in fitting units, a rate, and the ratio's interval") {
  Row bubble;
  bubble.name = "bubble";
  bubble.size = "4 stages x 8 micro-batches";
  bubble.floor = "of one forward, one backward";
  bubble.unit = Unit::Share;
  bubble.values = {0.3};
  bubble.floor_values = {0.2};
  const BenchReport report{"optimizer/some", 1, 2, 8, {timed_row(), bubble}};
  const strata::text::Table table = bench_table(report);
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0] == std::vector<std::string>{"step", "1.00 MiB", "2.35 ms", "2.00 ms..2.70 ms", "1.70 GB/s",
                                                  "one pass over 3 streams", "1.00 ms", "2.34 [2.00, 2.70]"});
  CHECK(table.rows[1] == std::vector<std::string>{"bubble", "4 stages x 8 micro-batches", "30.0 %", "30.0 %", "",
                                                  "of one forward, one backward", "20.0 %", "1.50"});
  const nlohmann::ordered_json json = to_json(report);
  CHECK(json["plugin"] == "optimizer/some");
  CHECK(json["rows"][0]["median"].get<double>() == Approx(2.35e-3));
  CHECK(json["rows"][0]["values"].size() == 8);
  CHECK(json["rows"][1]["unit"] == "share");
  CHECK(json["rows"][1]["ratio"].get<double>() == Approx(1.5));
}

namespace {

// Work that takes so many seconds, the next time the next of them, and counts itself.
Work spin(std::vector<double> seconds, int& calls) {
  return [seconds = std::move(seconds), &calls, next = std::size_t{0}]() mutable {
    ++calls;
    const double length = seconds[next++ % seconds.size()];
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < length) {
    }
  };
}

}  // namespace

TEST_CASE("a floor is the fastest of several ways") {
  Settings settings;
  settings.rounds = 8;
  settings.seconds = 1e-12;
  int slow = 0, fast = 0;
  const Row row =
      InterleavedTimer(settings).time({}, [] {}, {spin({3e-3}, slow), spin({1e-5}, fast), spin({3e-3}, slow)});
  CHECK(slow == 2 * (2 + 8));
  CHECK(fast == 2 * (2 + 8));
  REQUIRE(row.floor_values.size() == 8);
  for (const double seconds : row.floor_values) CHECK(seconds >= 1e-5);
  CHECK(*std::min_element(row.floor_values.begin(), row.floor_values.end()) < 3e-3);
}

TEST_CASE("a plugin that equals its floor is as fast, though times vary") {
  Settings settings;
  settings.rounds = 12;
  settings.seconds = 1e-12;
  int calls = 0;
  const std::vector<double> varying{1e-5, 3e-3, 3e-3};  // in every round one of the ways is fast
  const std::vector<Work> ways{spin(varying, calls), spin({3e-3, 3e-3, 1e-5}, calls), spin({3e-3, 1e-5, 3e-3}, calls)};
  Row row = InterleavedTimer(settings).time({}, spin(varying, calls), ways);
  const auto middle = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  CHECK(middle(row.values) < 30.0 * middle(row.floor_values));
}

TEST_CASE("a pass moves the bytes of its streams, of any lengths") {
  const Streams streams({{4000, true, true}, {4000, true, false}, {2000, false, true}});
  CHECK(streams.bytes() == 14000.0);
  CHECK(streams.name() == "one pass over 4 streams");
  for (const Streams& some : {Streams({{4, true, false}}), Streams::of_copy(0), Streams::of_copy(1000001)}) {
    REQUIRE_FALSE(some.passes().empty());
    for (const Work& pass : some.passes()) pass();
  }
  for (const Work& pass : streams.passes()) pass();
}
