#include "tools/schedule/drawing.hpp"

#include "program/grid.hpp"
#include "text/formatted.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <ostream>

namespace strata::schedule {
namespace {

std::string percent(double part) {
  return text::formatted("%.1f %%", 100.0 * part);
}

std::string title(const ScheduleDrawing& drawing) {
  const PipelineShape& shape = drawing.shape;
  const auto count = [](int number, const std::string& noun, const std::string& plural) {
    return std::to_string(number) + " " + (number == 1 ? noun : noun + plural);
  };
  return drawing.scheduler + ": " + count(shape.stages, "stage", "s") + " of " +
         count(shape.chunks_per_stage, "chunk", "s") + ", " + count(shape.micro_batches, "micro-batch", "es") +
         (!drawing.cost ? ""
                        : "; forward " + std::to_string(drawing.cost->forward) + ", backward " +
                              std::to_string(drawing.cost->of(ComputeKind::Backward)) + ", communication " +
                              std::to_string(drawing.cost->communication));
}

const char* color(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::Forward:
      return "#7aa6da";
    case ComputeKind::Backward:
      return "#8cc07f";
    case ComputeKind::BackwardInput:
      return "#e8c268";
    case ComputeKind::BackwardWeight:
      return "#c99bd1";
    case ComputeKind::Update:
      return "#333333";
  }
  return "#999999";
}

}  // namespace

double ScheduleDrawing::speculative_bubble() const {
  const auto total = static_cast<double>(speculative) * static_cast<double>(timeline.busy.size());
  const auto used = static_cast<double>(std::accumulate(timeline.busy.begin(), timeline.busy.end(), std::int64_t{0}));
  return total > 0 ? 1.0 - used / total : 0.0;
}

void write_schedule_text(const ScheduleDrawing& drawing, std::ostream& out) {
  const program::Timeline& timeline = drawing.timeline;
  const std::string grid = program::draw_grid(timeline, drawing.shape.chunks_per_stage > 1);
  out << title(drawing) << "\n\n"
      << (grid.empty() ? "(too many columns for a terminal: use --format svg or json)\n" : grid) << "\n";
  out << "  stage      busy      idle     inner  peak live\n";
  for (std::size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    out << std::setw(7) << stage << std::setw(10) << timeline.busy[stage] << std::setw(10)
        << timeline.makespan - timeline.busy[stage] << std::setw(10) << timeline.inner_idle[stage] << std::setw(11)
        << timeline.peak_live[stage] << "\n";
  }
  out << "makespan " << timeline.makespan << ", bubble " << percent(timeline.bubble()) << " of all stages' time\n";
  if (drawing.speculative < timeline.makespan)
    out << "with step_policy: speculative, a step after another takes " << drawing.speculative << ", bubble "
        << percent(drawing.speculative_bubble()) << "\n";
  out << "idle: of the whole step; inner: between the stage's first action and its last\n"
      << "peak live: the most passes of a micro-batch through a chunk whose activations the stage holds at once\n";
}

namespace {

constexpr std::int64_t row_height = 28, left_margin = 70, top_margin = 34, widest_drawing = 1400;

std::int64_t svg_height(const ScheduleDrawing& drawing) {
  return top_margin + static_cast<std::int64_t>(drawing.timeline.stages.size()) * row_height + 30;
}

// `span`: the time that the picture is wide; `y`: where it begins.
void write_svg(const ScheduleDrawing& drawing, std::int64_t span, std::int64_t top, std::ostream& out) {
  const program::Timeline& timeline = drawing.timeline;
  const double unit = std::clamp(static_cast<double>(widest_drawing) / static_cast<double>(span), 1e-9, 30.0);
  const auto at = [&](std::int64_t time) {
    return static_cast<double>(left_margin) + unit * static_cast<double>(time);
  };
  const std::int64_t height = svg_height(drawing);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" y=\"" << top << "\" width=\"" << at(span) + 20 << "\" height=\""
      << height
      << "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      << "<text x=\"8\" y=\"18\" font-size=\"13\">" << title(drawing) << "; bubble " << percent(timeline.bubble())
      << "</text>\n";
  for (std::size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    const std::int64_t y = top_margin + static_cast<std::int64_t>(stage) * row_height;
    out << "<text x=\"8\" y=\"" << y + 17 << "\">stage " << stage << "</text>\n<rect x=\"" << left_margin << "\" y=\""
        << y << "\" width=\"" << at(span) - static_cast<double>(left_margin) << "\" height=\"" << row_height - 4
        << "\" fill=\"#eeeeee\"/>\n";
    for (const program::TimedAction& timed : timeline.stages[stage]) {
      const bool is_update = timed.action.kind == ComputeKind::Update;
      const double width = is_update ? 2.0 : at(timed.end) - at(timed.start);
      std::string label = to_string(timed.action);
      out << "<g><title>" << label << " from " << timed.start << " to " << timed.end << "</title><rect x=\""
          << at(timed.start) << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << row_height - 4
          << "\" fill=\"" << color(timed.action.kind) << "\" stroke=\"white\"/>";
      if (drawing.shape.chunks_per_stage == 1) label = std::to_string(timed.action.micro_batch);
      if (width >= 7.0 * static_cast<double>(label.size())) {
        out << "<text x=\"" << at(timed.start) + width / 2 << "\" y=\"" << y + 16 << "\" text-anchor=\"middle\">"
            << label << "</text>";
      }
      out << "</g>\n";
    }
  }
  double x = static_cast<double>(left_margin);
  for (const auto& [kind, name] :
       {std::pair{ComputeKind::Forward, "forward"}, std::pair{ComputeKind::Backward, "backward"},
        std::pair{ComputeKind::BackwardInput, "of the input"}, std::pair{ComputeKind::BackwardWeight, "of the weights"},
        std::pair{ComputeKind::Update, "update"}}) {
    out << "<rect x=\"" << x << "\" y=\"" << height - 22 << "\" width=\"12\" height=\"12\" fill=\"" << color(kind)
        << "\"/><text x=\"" << x + 16 << "\" y=\"" << height - 12 << "\">" << name << "</text>\n";
    x += 105;
  }
  out << "</svg>\n";
}

}  // namespace

void write_schedules_svg(const std::vector<ScheduleDrawing>& drawings, std::ostream& out) {
  std::int64_t span = 1, height = 0;
  for (const ScheduleDrawing& drawing : drawings) {
    span = std::max(span, drawing.timeline.makespan);
    height += svg_height(drawing);
  }
  if (drawings.size() == 1) return write_svg(drawings.front(), span, 0, out);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << widest_drawing + left_margin + 20 << "\" height=\""
      << height << "\">\n";
  std::int64_t top = 0;
  for (const ScheduleDrawing& drawing : drawings) {
    write_svg(drawing, span, top, out);
    top += svg_height(drawing);
  }
  out << "</svg>\n";
}

nlohmann::ordered_json schedule_json(const ScheduleDrawing& drawing) {
  const program::Timeline& timeline = drawing.timeline;
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (std::size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    nlohmann::ordered_json actions = nlohmann::ordered_json::array();
    for (const program::TimedAction& timed : timeline.stages[stage]) {
      actions.push_back({{"action", to_string(timed.action)}, {"start", timed.start}, {"end", timed.end}});
    }
    stages.push_back({{"busy", timeline.busy[stage]},
                      {"inner_idle", timeline.inner_idle[stage]},
                      {"peak_live", timeline.peak_live[stage]},
                      {"actions", actions}});
  }
  return {{"scheduler", drawing.scheduler},
          {"stages", drawing.shape.stages},
          {"chunks_per_stage", drawing.shape.chunks_per_stage},
          {"micro_batches", drawing.shape.micro_batches},
          {"makespan", timeline.makespan},
          {"bubble", timeline.bubble()},
          {"speculative", {{"step", drawing.speculative}, {"bubble", drawing.speculative_bubble()}}},
          {"per_stage", stages}};
}

void write_schedules_trace(const std::vector<ScheduleDrawing>& drawings, std::ostream& out) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const auto name = [&](const char* what, std::size_t process, std::size_t track, const std::string& text) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", {{"name", text}}}});
  };
  for (std::size_t process = 0; process < drawings.size(); ++process) {
    const std::vector<std::vector<program::TimedAction>>& stages = drawings[process].timeline.stages;
    name("process_name", process, 0, title(drawings[process]));
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      name("thread_name", process, stage, "stage " + std::to_string(stage));
      for (const program::TimedAction& timed : stages[stage])
        events.push_back({{"name", to_string(timed.action)},
                          {"cat", timed.action.kind == ComputeKind::Forward ? "forward" : "backward"},
                          {"ph", "X"},
                          {"pid", process},
                          {"tid", stage},
                          {"ts", timed.start},
                          {"dur", timed.end - timed.start}});
    }
  }
  out << nlohmann::ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() << "\n";
}

}  // namespace strata::schedule
