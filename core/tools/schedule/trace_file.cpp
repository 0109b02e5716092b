#include "tools/schedule/trace_file.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "program/validate_schedule.hpp"
#include "report/run_summary.hpp"
#include "text/json.hpp"

namespace strata::schedule {

namespace {

using text::JsonValue;

constexpr text::JsonLimits trace_limits{std::size_t{1} << 30, std::size_t{1} << 26};
constexpr std::int64_t most_passes = 1 << 20;  // stages, chunks, micro-batches and layers of a step

int small_count(const JsonValue& value) {
  value.check(value.count() <= most_passes, "it must be at most " + std::to_string(most_passes));
  return static_cast<int>(value.count());
}

int small_count(const JsonValue& object, const char* key, int otherwise) {
  const std::optional<JsonValue> value = object.find(key);
  return value ? small_count(*value) : otherwise;
}

std::int64_t nanoseconds(const JsonValue& microseconds) {
  constexpr double longest = 1e14;  // three years
  microseconds.check(std::abs(microseconds.number()) <= longest, "it must be a time in microseconds");
  return std::llround(1e3 * microseconds.number());
}

void read_shape(const JsonValue& about, TraceFile& trace) {
  trace.scheduler = about["scheduler"].text();
  trace.device = about["device"].text();
  trace.shape = {small_count(about["stages"]), small_count(about["chunks_per_stage"]),
                 small_count(about["micro_batches"])};
  for (const JsonValue& stage : about["stage_of_chunk"].elements())
    trace.placement.stage_of_chunk.push_back(small_count(stage));
  for (const JsonValue& layers : about["layers_of_chunk"].elements()) {
    const std::vector<JsonValue> ends = layers.elements();
    layers.check(ends.size() == 2, "it must be a pair of layers");
    trace.placement.layers_of_chunk.emplace_back(small_count(ends[0]), small_count(ends[1]));
  }
  for (const JsonValue& stage : about["stage_of_rank"].elements()) {
    stage.check(small_count(stage) < trace.shape.stages, "it must be a stage of the pipeline");
    trace.ranks.push_back({static_cast<int>(trace.ranks.size()), small_count(stage), {}});
  }
  const auto chunks =
      static_cast<std::size_t>(trace.shape.stages) * static_cast<std::size_t>(trace.shape.chunks_per_stage);
  about["stages"].check(chunks == trace.placement.stage_of_chunk.size(),
                        "stages and chunks_per_stage must be those of stage_of_chunk");
}

Event read_event(const JsonValue& one) {
  Event event;
  event.category = one["cat"].text();
  event.begin = nanoseconds(one["ts"]);
  event.end = event.begin + nanoseconds(one["dur"]);
  if (event.category == "wait") return event;
  const JsonValue arguments = one["args"];
  event.op = arguments["op"].text();
  event.chunk = small_count(arguments, "chunk", -1);
  event.micro_batch = small_count(arguments, "micro_batch", -1);
  event.layer = small_count(arguments, "layer", -1);
  if (const auto waited = arguments.find("waited_for_tensor_us")) event.waited_for_tensor = nanoseconds(*waited);
  return event;
}

TraceFile parse(const JsonValue& document) {
  TraceFile trace;
  read_shape(document["strata"], trace);
  const std::vector<JsonValue> events = document["traceEvents"].elements();
  const JsonValue micro_batches = document["strata"]["micro_batches"];
  micro_batches.check(micro_batches.count() <= std::max<std::int64_t>(std::ssize(events), 1),
                      "it must be at most the number of events");
  std::vector<Event> waits(trace.ranks.size());  // the step of a wait is that of the compute that follows
  for (const JsonValue& one : events) {
    if (one["ph"].text() != "X") continue;
    const std::int64_t process = one["pid"].count();
    one["pid"].check(process < std::ssize(trace.ranks), "it must be a rank");
    const auto rank = static_cast<std::size_t>(process);
    Event event = read_event(one);
    if (event.category == "wait") {
      waits[rank] = event;
      continue;
    }
    std::vector<Event>& of_step = trace.ranks[rank].steps[one["args"]["step"].count()];
    if (!waits[rank].category.empty()) of_step.push_back(std::exchange(waits[rank], {}));
    of_step.push_back(std::move(event));
  }
  return trace;
}

}  // namespace

TraceFile read_trace(const std::string& path) {
  std::optional<text::JsonDocument> document;
  try {
    const InputFile file(path);
    std::string bytes(std::min<std::uint64_t>(file.size(), trace_limits.bytes + 1), '\0');
    file.read_at(0, bytes.data(), bytes.size());
    document.emplace(bytes, text::JsonSource{path}, trace_limits);
  } catch (const UserError& error) {
    throw UserError("{}; a trace is expected, which `strata train --trace FILE` writes", error.what());
  }
  if (!document->json().is_object() || !document->json().contains("strata"))
    throw UserError(Place{path}, "is not a trace; `strata train --trace FILE` writes one");
  TraceFile trace;
  try {
    trace = parse(document->object());
  } catch (const UserError& error) {
    throw UserError("{}; a trace that `strata train --trace` of this version writes is expected", error.what());
  }
  const int layers = trace.placement.layers_of_chunk.empty() ? 0 : trace.placement.layers_of_chunk.back().second;
  program::validate_placement(path, trace.placement, trace.shape, layers);
  return trace;
}

std::vector<stage::LayerTime> layer_times(const TraceFile& trace, const std::string& path) {
  std::map<std::pair<int, std::string>, std::vector<double>> durations;  // by layer and operation
  for (const RankTrace& rank : trace.ranks)
    for (const auto& [step, events] : rank.steps)
      for (const Event& event : events)
        if (event.layer >= 0)
          durations[{event.layer, event.op}].push_back(static_cast<double>(event.end - event.begin));
  const auto median_of = [&](int layer, const char* op) {
    return static_cast<std::int64_t>(report::median(durations[{layer, op}]));
  };
  std::vector<stage::LayerTime> times;
  const int layers = trace.placement.layers_of_chunk.back().second;
  for (int layer = 0; layer < layers; ++layer) {
    if (!durations.contains({layer, "Forward"}))
      throw UserError("{}: has no forward of layer {}; trace a whole step", path, layer);
    const std::int64_t half = median_of(layer, "Backward") / 2;
    times.push_back({median_of(layer, "Forward"), half + median_of(layer, "BackwardInput"),
                     half + median_of(layer, "BackwardWeight")});
  }
  return times;
}

}  // namespace strata::schedule
