// What ranks did over what their schedule predicts, on traces made by hand. Stages of 1F1B with 2 micro-batches.
#include <strata/error.hpp>

#include <fstream>
#include <functional>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "tools/trace/report.hpp"

using namespace strata;
using namespace strata::schedule;
using namespace strata::trace;

namespace {

constexpr std::int64_t millisecond = 1'000'000;
using TimeOf = std::function<std::int64_t(const ComputeAction&)>;

std::int64_t plain(const ComputeAction& action) {
  return action.kind == ComputeKind::Forward ? 10 : 20;
}

// One step in which every pass takes `time_of` milliseconds, of which the first `gather` are a gather, and arrives
// `travel` milliseconds late on the other stage.
void add_step(TraceFile& trace, std::int64_t step, const TimeOf& time_of, std::int64_t gather = 0,
              std::int64_t travel = 0) {
  const program::ComputeOrders orders{parse_compute_order("F0.0 F0.1 B0.0 B0.1"),
                                      parse_compute_order("F1.0 B1.0 F1.1 B1.1")};
  const program::Timeline timeline =
      travel == 0 ? program::simulate(orders, trace.placement, time_of)
                  : program::simulate(orders, trace.placement, program::uniform_costs(2, {10, 20, 0, travel}));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    std::vector<schedule::Event>& events = trace.ranks[stage].steps[step];
    std::int64_t clock = 7 * step * millisecond;
    const auto put = [&](const std::string& category, const std::string& op, const ComputeAction& action,
                         std::int64_t from, std::int64_t to) {
      events.push_back({category, op, action.chunk, action.micro_batch, (7 * step + from) * millisecond,
                        (7 * step + to) * millisecond});
      clock = events.back().end;
    };
    for (const program::TimedAction& timed : timeline.stages[stage]) {
      const bool forward = timed.action.kind == ComputeKind::Forward;
      if (gather > 0) put("gather", "Gather", {ComputeKind::Forward, -1, -1}, timed.start, timed.start + gather);
      put(forward ? "forward" : "backward", forward ? "Forward" : "Backward", timed.action, timed.start + gather,
          timed.end);
    }
    events.push_back({"end of step", "Update", -1, -1, clock, clock + 5 * millisecond});
  }
}

TraceFile empty_trace() {
  return {"1f1b", "cpu", {2, 1, 2}, {{0, 1}, {{0, 1}, {1, 2}}}, {{0, 0, {}}, {1, 1, {}}}};
}

void check(const Explanation& found, const Explanation& milliseconds) {
  CHECK(found.predicted == milliseconds.predicted * millisecond);
  CHECK(found.gathers == milliseconds.gathers * millisecond);
  CHECK(found.uneven == milliseconds.uneven * millisecond);
  CHECK(found.transfers == milliseconds.transfers * millisecond);
  CHECK(found.measured == milliseconds.measured * millisecond);
}

}  // namespace

TEST_CASE("a step without delays is the prediction") {
  TraceFile trace = empty_trace();
  add_step(trace, 3, plain);
  const std::vector<Comparison> found = compare(trace);
  REQUIRE(found.size() == 1);
  CHECK(found[0].step == 3);
  check(found[0].explanation, {90, 0, 0, 0, 90});  // (m + p - 1)(F + B)
  for (const StageTimes& stage : found[0].stages) {
    CHECK(stage.compute == 60 * millisecond);
    CHECK(stage.idle == 30 * millisecond);  // (p - 1)(F + B)
    CHECK(stage.predicted_idle == 30 * millisecond);
    CHECK(stage.end_of_step == 5 * millisecond);
  }
}

TEST_CASE("a difference is put down to gathers, to uneven passes or to transfers") {
  TraceFile gathers = empty_trace();
  add_step(
      gathers, 1, [](const ComputeAction& action) { return plain(action) + 2; }, 2);
  const std::vector<Comparison> found = compare(gathers);
  check(found[0].explanation, {90, 12, 0, 0, 102});
  CHECK(found[0].stages[1].gathers == 8 * millisecond);

  TraceFile uneven = empty_trace();
  add_step(uneven, 1, plain);
  add_step(uneven, 2, plain);
  add_step(uneven, 3, [](const ComputeAction& action) {
    return plain(action) + (action == ComputeAction{ComputeKind::Forward, 1, 1} ? 4 : 0);
  });
  const std::vector<Comparison> three = compare(uneven);
  check(three[0].explanation, {90, 0, 0, 0, 90});
  check(three[2].explanation, {90, 0, 4, 0, 94});

  TraceFile transfers = empty_trace();
  add_step(transfers, 1, plain, 0, 3);
  const Explanation late = compare(transfers)[0].explanation;
  CHECK(late.predicted == 90 * millisecond);
  CHECK(late.uneven == 0);
  CHECK(late.transfers == 6 * millisecond);  // to stage 1 before its first pass, and back after its last
}

TEST_CASE("the report as a table, as JSON and as a picture") {
  TraceFile trace = empty_trace();
  add_step(trace, 1, plain);
  const auto report = [&](const std::string& format) {
    std::ostringstream out;
    write_report("my.json", trace, compare(trace), format, out);
    return out.str();
  };
  CHECK_THAT(report("text"), Contains("my.json: 1f1b on 2 stages of 1 chunk, 2 micro-batches; 1 step from step 1") &&
                                 Contains("    1      60.00       0.00      30.00           30.00         5.00\n") &&
                                 Contains("= measured        90.00\n"));
  CHECK_THAT(report("json"), Contains("\"measured_ms\": 90.0"));
  CHECK_THAT(report("svg"), Contains("as measured") && Contains("<title>B1.1 from 50000 to 70000"));
  trace.device = "cuda";
  CHECK_THAT(report("text"), Contains("which return before the device has computed"));
}

TEST_CASE("a trace that is none, or has no whole step, is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  const auto refused = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_of<UserError>([&] { return compare(read_trace(path)); });
  };
  CHECK_THAT(error_of<UserError>([&] { return read_trace(folder / "none.json"); }),
             Contains("cannot be opened") && Contains("strata train --trace"));
  for (const char* text : {"[]", "{}", "{\"traceEvents\": []}"})
    CHECK_THAT(refused(text), Contains("is not a trace; `strata train --trace FILE` writes one"));
  for (const char* text : {"", "{"})
    CHECK_THAT(refused(text), Contains("is not valid JSON") && Contains("which `strata train --trace FILE` writes"));
  CHECK_THAT(refused(R"({"strata": {}, "traceEvents": []})"), Contains("the key strata.scheduler is missing"));
  const std::string about =
      R"({"strata": {"scheduler": "1f1b", "device": "cpu", "stages": 1, "chunks_per_stage": 1, "micro_batches": 1, "stage_of_chunk": [0], "layers_of_chunk": [[0, 1]], "stage_of_rank": [0]}, "traceEvents": [)";
  CHECK_THAT(refused(about + "]}"), Contains("the trace has no step"));
  const auto event = [](const std::string& op, int rank) {
    return R"({"name": "x", "cat": "forward", "ph": "X", "pid": )" + std::to_string(rank) +
           R"(, "tid": 0, "ts": 1.5, "dur": 2.0, "args": {"step": 1, "op": ")" + op +
           R"(", "chunk": 0, "micro_batch": 0, "layer": 0}})";
  };
  std::ofstream(path) << about << event("Backward", 0) << "]}";
  CHECK_THROWS_WITH(compare(read_trace(path)), Contains("the trace of 1f1b"));  // with a picture
  CHECK_THAT(refused(about + event("Forward", 7) + "]}"), Contains("traceEvents[0].pid is 7; it must be a rank"));
  CHECK(refused(about + event("Forward", 0) + "," + event("Backward", 0) + "]}").empty());
}

TEST_CASE("the costs of a trace's layers are their times, with split backwards too") {
  schedule::TraceFile trace;
  trace.placement = {{0, 1}, {{0, 1}, {1, 2}}};
  trace.ranks = {{0, 0, {}}, {1, 1, {}}};
  const auto add = [&](std::size_t rank, const char* op, std::int64_t duration) {
    trace.ranks[rank].steps[1].push_back({"compute", op, 0, 0, 100, 100 + duration, static_cast<int>(rank)});
  };
  for (const std::int64_t duration : {10, 30, 20}) {
    add(0, "Forward", duration);
    add(0, "Backward", 3 * duration);
    add(1, "Forward", 2 * duration);
    add(1, "BackwardInput", 3 * duration);
    add(1, "BackwardWeight", duration);
  }
  const std::vector<stage::LayerTime> times = schedule::layer_times(trace, "trace.json");
  REQUIRE(times.size() == 2);
  const auto is = [](const stage::LayerTime& time, std::int64_t forward, std::int64_t input, std::int64_t weight) {
    return time.forward == forward && time.backward_input == input && time.backward_weight == weight;
  };
  CHECK(is(times[0], 20, 30, 30));
  CHECK(is(times[1], 40, 60, 20));
  trace.placement.layers_of_chunk.back().second = 3;
  CHECK_THROWS_WITH(schedule::layer_times(trace, "trace.json"),
                    Catch::Contains("trace.json: has no forward of layer 2"));
}
