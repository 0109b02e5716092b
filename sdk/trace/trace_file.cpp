#include "trace/trace_file.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "program/validate_schedule.hpp"

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

}  // namespace strata::trace
