#include "schedule/trace_file.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program/validate_schedule.hpp"
#include "tools/train/run_summary.hpp"

namespace strata::trace {

namespace {

using nlohmann::json;

std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(1e3 * microseconds.get<double>());
}

TraceFile parse(const json& document) {
  const json& about = document.at("strata");
  TraceFile trace;
  trace.scheduler = about.at("scheduler");
  trace.device = about.at("device");
  trace.shape = {about.at("stages"), about.at("chunks_per_stage"), about.at("micro_batches")};
  trace.placement.stage_of_chunk = about.at("stage_of_chunk").get<std::vector<int>>();
  trace.placement.layers_of_chunk = about.at("layers_of_chunk").get<std::vector<std::pair<int, int>>>();
  for (const json& stage : about.at("stage_of_rank"))
    trace.ranks.push_back({static_cast<int>(trace.ranks.size()), stage.get<int>(), {}});
  std::vector<Event> waits(trace.ranks.size());  // the step of a wait is that of the compute that follows
  for (const json& one : document.at("traceEvents")) {
    if (one.at("ph") != "X") continue;
    const std::size_t rank = one.at("pid");
    Event event;
    event.category = one.at("cat");
    event.begin = nanoseconds(one.at("ts"));
    event.end = event.begin + nanoseconds(one.at("dur"));
    if (event.category == "wait") {
      waits.at(rank) = event;
      continue;
    }
    const json& arguments = one.at("args");
    event.op = arguments.at("op");
    event.chunk = arguments.value("chunk", -1);
    event.micro_batch = arguments.value("micro_batch", -1);
    event.layer = arguments.value("layer", -1);
    if (arguments.contains("waited_for_tensor_us"))
      event.waited_for_tensor = nanoseconds(arguments.at("waited_for_tensor_us"));
    std::vector<Event>& events = trace.ranks.at(rank).steps[arguments.at("step").get<std::int64_t>()];
    if (!waits[rank].category.empty()) events.push_back(std::exchange(waits[rank], {}));
    events.push_back(std::move(event));
  }
  return trace;
}

}  // namespace

TraceFile read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UserError(path + ": cannot be read");
  const json document = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.is_object() || !document.contains("strata"))
    throw UserError(path + ": is not a trace; `strata train --trace FILE` writes one");
  TraceFile trace;
  try {
    trace = parse(document);
  } catch (const std::exception& error) {
    throw UserError(path + ": is not a trace that `strata train --trace` of this version writes: " + error.what());
  }
  const int layers = trace.placement.layers_of_chunk.empty() ? 0 : trace.placement.layers_of_chunk.back().second;
  runtime::validate_placement(path, trace.placement, trace.shape, layers);
  return trace;
}

std::vector<runtime::LayerTime> layer_times(const TraceFile& trace, const std::string& path) {
  std::map<std::pair<int, std::string>, std::vector<double>> durations;  // by layer and operation
  for (const RankTrace& rank : trace.ranks)
    for (const auto& [step, events] : rank.steps)
      for (const Event& event : events)
        if (event.layer >= 0)
          durations[{event.layer, event.op}].push_back(static_cast<double>(event.end - event.begin));
  const auto median_of = [&](int layer, const char* op) {
    return static_cast<std::int64_t>(report::median(durations[{layer, op}]));
  };
  std::vector<runtime::LayerTime> times;
  const int layers = trace.placement.layers_of_chunk.back().second;
  for (int layer = 0; layer < layers; ++layer) {
    if (!durations.contains({layer, "Forward"}))
      throw UserError(path + ": has no forward of layer " + std::to_string(layer) + "; trace a whole step");
    const std::int64_t half = median_of(layer, "Backward") / 2;
    times.push_back({median_of(layer, "Forward"), half + median_of(layer, "BackwardInput"),
                     half + median_of(layer, "BackwardWeight")});
  }
  return times;
}

}  // namespace strata::trace
