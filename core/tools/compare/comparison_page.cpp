#include "tools/compare/comparison_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string>

#include "report/run_summary.hpp"
#include "text/formatted.hpp"
#include "text/size.hpp"

namespace strata::compare {

namespace {

// Okabe and Ito's colours, which colour-blind readers can distinguish; they repeat from the ninth variant on.
constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000"};
const char* colour_of(std::size_t variant) {
  return colours[variant % colours.size()];
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '&')
      safe += "&amp;";
    else if (letter == '<')
      safe += "&lt;";
    else if (letter == '>')
      safe += "&gt;";
    else if (letter == '"')
      safe += "&quot;";
    else
      safe += letter;
  }
  return safe;
}

constexpr double plot_width = 720, plot_height = 300, plot_left = 70, plot_right = 20, plot_top = 30, plot_bottom = 40;

// The distance of marks on an axis: 1, 2 or 5 times a power of ten, so that about five of them cover `range`.
double distance_of_marks(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / 5.0)));
  const double least = range / 5.0 / power;
  return power * (least <= 1.0 ? 1.0 : least <= 2.0 ? 2.0 : least <= 5.0 ? 5.0 : 10.0);
}

void print_table(const Comparison& comparison, std::ostream& out) {
  const text::Table table = comparison_table(comparison, text::TableFormat::Text);
  out << "<table>\n<tr>";
  for (const text::Column& column : table.columns) out << "<th>" << escaped(column.name) << "</th>";
  out << "</tr>\n";
  for (const auto& row : table.rows) {
    out << "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out << (i == 0 ? "<th>" : "<td>") << escaped(row[i]) << (i == 0 ? "</th>" : "</td>");
    out << "</tr>\n";
  }
  out << "</table>\n";
}

void print_runs(const Comparison& comparison, std::ostream& out) {
  out << "<h2>What was run</h2>\n<dl>\n";
  for (const auto& [name, text] : account_of_runs(comparison))
    out << "<dt>" << escaped(name) << "</dt><dd>" << escaped(text) << "</dd>\n";
  out << "</dl>\n";
}

void print_legend(const Comparison& comparison, std::ostream& out) {
  out << "<p class=\"legend\">";
  for (std::size_t i = 0; i < comparison.variants.size(); ++i)
    out << "<span><b style=\"background:" << colour_of(i) << "\"></b>" << escaped(comparison.variants[i].name)
        << "</span> ";
  out << "</p>\n";
}

// A curve breaks where a loss is not finite.
void print_losses(const Comparison& comparison, std::ostream& out) {
  double low = INFINITY, high = -INFINITY;
  std::size_t steps = 0;
  for (const ComparedVariant& variant : comparison.variants) {
    steps = std::max(steps, variant.losses.size());
    for (const double loss : variant.losses) {
      if (!std::isfinite(loss)) continue;
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
  out << "<h2>Loss by step</h2>\n";
  if (!(low <= high)) {
    out << "<p>No loss was finite.</p>\n";
    return;
  }
  if (low == high) high = low + std::max(1e-6, std::abs(low) * 1e-3);
  const double distance = distance_of_marks(high - low);
  low = std::floor(low / distance) * distance;
  high = std::ceil(high / distance) * distance;
  const auto x = [&](std::size_t step) {
    return plot_left + (plot_width - plot_left - plot_right) *
                           (steps < 2 ? 0.5 : static_cast<double>(step) / static_cast<double>(steps - 1));
  };
  const auto y = [&](double loss) {
    return plot_top + (plot_height - plot_top - plot_bottom) * (high - loss) / (high - low);
  };
  out << text::formatted("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"loss by step\">\n", plot_width,
                         plot_height);
  out << text::formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">loss</text>\n", plot_left - 6, plot_top - 14);
  for (int mark = 0; mark <= static_cast<int>(std::lround((high - low) / distance)); ++mark) {
    const double loss = low + distance * mark;
    out << text::formatted(
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
        "text-anchor=\"end\">%.10g</text>\n",
        plot_left, plot_width - plot_right, y(loss), y(loss), plot_left - 6, y(loss) + 4,
        std::abs(loss) < distance / 2 ? 0.0 : loss);
  }
  out << text::formatted(
      "<text x=\"%.1f\" y=\"%.1f\">step 1</text><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">step %zu</text>\n",
      plot_left, plot_height - 12, plot_width - plot_right, plot_height - 12, steps);
  for (std::size_t i = 0; i < comparison.variants.size(); ++i) {
    const std::vector<double>& losses = comparison.variants[i].losses;
    out << "<path stroke=\"" << colour_of(i) << "\" d=\"";
    bool drawing = false;
    for (std::size_t step = 0; step < losses.size(); ++step) {
      if (std::isfinite(losses[step]))
        out << text::formatted("%c%.1f %.1f", drawing ? 'L' : 'M', x(step), y(losses[step]));
      drawing = std::isfinite(losses[step]);
    }
    out << "\"><title>" << escaped(comparison.variants[i].name) << "</title></path>\n";
  }
  out << "</svg>\n";
}

struct Bar {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
  std::string text;
};

void print_bars(const std::string& title, const Comparison& comparison, const std::vector<Bar>& bars,
                std::ostream& out) {
  double most = 1e-30;
  for (const Bar& bar : bars) most = std::max({most, bar.value, bar.high});
  constexpr double line = 30, label = 260;
  const double room = plot_width - label - 130;
  out << "<h2>" << title << "</h2>\n"
      << text::formatted("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", plot_width,
                         line * static_cast<double>(bars.size()) + 10);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double y = line * static_cast<double>(i) + 6;
    const auto x = [&](double value) { return label + room * value / most; };
    std::string name = comparison.variants[i].name;
    if (name.size() > 40) name = "..." + name.substr(name.size() - 37);
    out << text::formatted("<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", label - 8, y + 15) << escaped(name)
        << "</text>"
        << text::formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" fill=\"%s\"/>", label, y,
                           x(bars[i].value) - label, colour_of(i));
    if (bars[i].high > bars[i].low)
      out << text::formatted("<line class=\"spread\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x(bars[i].low),
                             x(bars[i].high), y + 10, y + 10);
    out << text::formatted("<text x=\"%.1f\" y=\"%.1f\">", x(std::max(bars[i].value, bars[i].high)) + 6, y + 15)
        << escaped(bars[i].text) << "</text>\n";
  }
  out << "</svg>\n";
}

}  // namespace

void print_page(const Comparison& comparison, std::ostream& out) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Strata "
         "comparison</title>\n<style>\n"
         "body{font:15px/1.4 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 "
         "1em;color:#222;background:#fff}\n"
         "table{border-collapse:collapse}th,td{padding:.2em .7em;border-bottom:1px solid "
         "#ddd;text-align:right;vertical-align:top}th{overflow-wrap:anywhere}\n"
         "dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{max-width:20em}dt,dd{margin:0;"
         "overflow-wrap:anywhere}\n"
         "th:first-child{text-align:left}h2{font-size:1.1em;margin-top:2em}svg{width:100%;max-width:60em}svg "
         "text{font-size:12px;fill:#222}\n"
         "path{fill:none;stroke-width:1.8}.grid{stroke:#ddd}.spread{stroke:#222;stroke-width:2}\n"
         ".legend span{margin-right:1.5em;white-space:nowrap}.legend "
         "b{display:inline-block;width:1em;height:.8em;margin-right:.4em}\n"
         "</style>\n</head>\n<body>\n<h1>Strata comparison</h1>\n<p>"
      << escaped(account_of_times(comparison))
      << ". Times are compared by pairs, with a signed-rank interval at 99 %.</p>\n";
  print_table(comparison, out);
  print_runs(comparison, out);
  print_losses(comparison, out);
  print_legend(comparison, out);
  std::vector<Bar> times, bytes;
  for (const ComparedVariant& variant : comparison.variants) {
    const auto [low, high] = std::minmax_element(variant.step_seconds.begin(), variant.step_seconds.end());
    const double middle = report::median(variant.step_seconds);
    times.push_back({middle, *low, *high, text::formatted("%#.4g s", middle)});
    const double peak = peak_bytes(variant);
    bytes.push_back({peak, 0.0, 0.0, text::format_bytes(static_cast<std::int64_t>(peak))});
  }
  print_bars("Median step time, with the fastest and the slowest run", comparison, times, out);
  print_bars("Peak bytes of the largest rank", comparison, bytes, out);
  out << "</body>\n</html>\n";
}

}  // namespace strata::compare
