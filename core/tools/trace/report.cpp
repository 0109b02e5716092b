#include "tools/trace/report.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "report/run_summary.hpp"
#include "text/formatted.hpp"
#include "tools/schedule/drawing.hpp"

namespace strata::trace {

namespace {

using Times = std::function<std::int64_t(const Comparison&)>;

double milliseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

// In milliseconds.
double median_of(const std::vector<Comparison>& steps, const Times& time) {
  std::vector<double> all;
  for (const Comparison& step : steps) all.push_back(milliseconds(time(step)));
  return report::median(all);
}

std::string count(std::size_t number, const std::string& noun, const std::string& plural) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : plural);
}

void write_text(const std::string& name, const schedule::TraceFile& trace, const std::vector<Comparison>& steps,
                std::ostream& out) {
  const PipelineShape& shape = trace.shape;
  out << name << ": " << trace.scheduler << " on " << count(static_cast<std::size_t>(shape.stages), "stage", "s")
      << " of " << count(static_cast<std::size_t>(shape.chunks_per_stage), "chunk", "s") << ", "
      << count(static_cast<std::size_t>(shape.micro_batches), "micro-batch", "es") << "; "
      << count(steps.size(), "step", "s") << " from step " << steps.front().step << ", medians in ms";
  if (trace.device != "cpu") out << "\ntimes of the host's calls, which return before the device has computed";
  out << "\n\n"
      << text::formatted("%5s %10s %10s %10s %15s %12s\n", "stage", "compute", "gathers", "idle", "predicted idle",
                         "end of step");
  for (std::size_t stage = 0; stage < steps.front().stages.size(); ++stage) {
    const auto of = [&](std::int64_t StageTimes::*part) {
      return median_of(steps, [&](const Comparison& step) { return step.stages[stage].*part; });
    };
    out << text::formatted("%5zu %10.2f %10.2f %10.2f %15.2f %12.2f\n", stage, of(&StageTimes::compute),
                           of(&StageTimes::gathers), of(&StageTimes::idle), of(&StageTimes::predicted_idle),
                           of(&StageTimes::end_of_step));
  }
  const auto waits = [&](std::size_t stage) {
    return median_of(steps, [&](const Comparison& step) { return step.stages[stage].tensor; });
  };
  for (std::size_t stage = 0; stage < steps.front().stages.size(); ++stage)
    if (waits(stage) > 0.0)
      out << text::formatted("stage %zu waits %.2f ms of its compute for the other ranks of its tensor group\n", stage,
                             waits(stage));
  const auto line = [&](const char* label, std::int64_t Explanation::*part, const char* text) {
    const double time = median_of(steps, [&](const Comparison& step) { return step.explanation.*part; });
    out << text::formatted("%-12s %10.2f%s\n", label, time, text);
  };
  out << "\nFrom the first pass to the last:\n";
  line("  predicted", &Explanation::predicted,
       "  every pass takes the median of its kind and chunk, and nothing else does");
  line("+ gathers", &Explanation::gathers,
       "  parameters gathered, gradients reduced, buffers of other memory tiers, updates within the step");
  line("+ uneven", &Explanation::uneven, "  passes that took other times than their medians");
  line("+ transfers", &Explanation::transfers, "  the rest: transfers between stages, and time between instructions");
  line("= measured", &Explanation::measured, "");
  out << text::formatted(
      "%-12s %10.2f  %s\n", "end of step", median_of(steps, [](const Comparison& step) { return step.end_of_step; }),
      "on the stage where it takes longest: the norm, at which stages wait for each other; the update");
}

nlohmann::ordered_json to_json(const Comparison& step) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageTimes& times : step.stages)
    stages.push_back({{"compute_ms", milliseconds(times.compute)},
                      {"tensor_ms", milliseconds(times.tensor)},
                      {"gathers_ms", milliseconds(times.gathers)},
                      {"idle_ms", milliseconds(times.idle)},
                      {"predicted_idle_ms", milliseconds(times.predicted_idle)},
                      {"end_of_step_ms", milliseconds(times.end_of_step)}});
  const Explanation& parts = step.explanation;
  return {{"step", step.step},
          {"predicted_ms", milliseconds(parts.predicted)},
          {"gathers_ms", milliseconds(parts.gathers)},
          {"uneven_ms", milliseconds(parts.uneven)},
          {"transfers_ms", milliseconds(parts.transfers)},
          {"measured_ms", milliseconds(parts.measured)},
          {"end_of_step_ms", milliseconds(step.end_of_step)},
          {"per_stage", stages}};
}

// In microseconds.
schedule::ScheduleDrawing drawing_of(const std::string& title, const schedule::TraceFile& trace,
                                     program::Timeline timeline) {
  for (auto& stage : timeline.stages)
    for (program::TimedAction& timed : stage) timed = {timed.action, timed.start / 1000, timed.end / 1000};
  for (std::int64_t& time : timeline.busy) time /= 1000;
  for (std::int64_t& time : timeline.inner_idle) time /= 1000;
  timeline.makespan /= 1000;
  return {title, trace.shape, {}, std::move(timeline)};
}

}  // namespace

void write_report(const std::string& name, const schedule::TraceFile& trace, const std::vector<Comparison>& steps,
                  const std::string& format, std::ostream& out) {
  if (format == "json") {
    nlohmann::ordered_json document{{"scheduler", trace.scheduler},
                                    {"device", trace.device},
                                    {"stages", trace.shape.stages},
                                    {"chunks_per_stage", trace.shape.chunks_per_stage},
                                    {"micro_batches", trace.shape.micro_batches},
                                    {"steps", nlohmann::ordered_json::array()}};
    for (const Comparison& step : steps) document["steps"].push_back(to_json(step));
    out << document.dump(1) << "\n";
  } else if (format == "svg") {
    std::vector<const Comparison*> by_length;
    for (const Comparison& step : steps) by_length.push_back(&step);
    const auto middle = by_length.begin() + static_cast<std::ptrdiff_t>(by_length.size() / 2);
    std::ranges::nth_element(by_length, middle, {}, [](const Comparison* step) { return step->explanation.measured; });
    schedule::write_schedules_svg(
        {drawing_of(trace.scheduler + ", step " + std::to_string((*middle)->step) + " as measured, in microseconds",
                    trace, (*middle)->measured),
         drawing_of(trace.scheduler + " as predicted from the medians of its passes", trace, (*middle)->predicted)},
        out);
  } else {
    write_text(name, trace, steps, out);
  }
}

}  // namespace strata::trace
