#include "program/grid.hpp"

#include <algorithm>
#include <numeric>

namespace strata::program {
namespace {

constexpr std::size_t columns_around_mark = 10;

struct Row {
  std::vector<std::string> cells;
  bool marked = false;

  // An action of no time is written after the one that ended then.
  void put(std::size_t column, std::size_t width, const std::string& text) {
    if (width == 0 && column > 0 && cells.size() >= column) {
      cells[column - 1] += text;
      return;
    }
    width = std::max<std::size_t>(width, 1);
    if (cells.size() < column + width) cells.resize(column + width, ".");
    cells[column] = text;
    std::fill(cells.begin() + static_cast<std::ptrdiff_t>(column) + 1,
              cells.begin() + static_cast<std::ptrdiff_t>(column + width), "--");
  }
};

std::string write_rows(std::vector<Row> rows, std::size_t from, std::size_t to) {
  std::size_t width = 2;
  std::size_t columns = 0;
  for (const Row& row : rows) {
    columns = std::max(columns, row.cells.size());
    for (const std::string& cell : row.cells) width = std::max(width, cell.size());
  }
  to = std::min(to, columns);
  const std::size_t name_width = std::to_string(rows.size()).size();
  std::string text;
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    rows[stage].cells.resize(columns, ".");
    const std::string name = std::to_string(stage);
    std::string line = "stage " + std::string(name_width - name.size(), ' ') + name + " |" + (from > 0 ? " ..." : "");
    for (std::size_t column = from; column < to; ++column) {
      const std::string& cell = rows[stage].cells[column];
      line += " " + cell + std::string(width - cell.size(), ' ');
    }
    if (to < columns) line += " ...";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + (rows[stage].marked ? "   <-- here" : "") + "\n";
  }
  return text;
}

std::size_t width_of(ComputeKind kind) {
  return static_cast<std::size_t>(ChunkCost{}.of(kind));
}

// The simulated run as far as it gets; nothing if an action names a chunk that does not exist.
std::vector<std::vector<TimedAction>> run_what_can(const ComputeOrders& orders, const Placement& placement) {
  const auto chunks = static_cast<int>(placement.stage_of_chunk.size());
  for (const auto& order : orders) {
    for (const ComputeAction& action : order) {
      if (action.chunk < 0 || action.chunk >= chunks) return std::vector<std::vector<TimedAction>>(orders.size());
    }
  }
  return simulate(orders, placement, uniform_costs(chunks, {})).stages;
}

}  // namespace

std::string draw_grid(const ComputeOrders& orders, const Placement& placement, const std::vector<Mark>& marks) {
  const auto ran = run_what_can(orders, placement);
  std::vector<Row> rows(orders.size());
  std::size_t first_marked_column = 0;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    std::size_t end = 0;
    for (std::size_t index = 0; index <= orders[stage].size(); ++index) {
      const bool marked = std::ranges::any_of(
          marks, [&](const Mark& mark) { return mark.stage == static_cast<int>(stage) && mark.index == index; });
      const bool exists = index < orders[stage].size();
      const std::size_t column = index < ran[stage].size() ? static_cast<std::size_t>(ran[stage][index].start) : end;
      if (marked) {
        if (!rows[stage].marked) first_marked_column = std::max(first_marked_column, column);
        rows[stage].marked = true;
      }
      if (!exists && !marked) continue;
      const std::string label = exists ? to_string(orders[stage][index]) : "?";
      const std::size_t width = exists ? width_of(orders[stage][index].kind) : 1;
      rows[stage].put(column, width, marked ? "[" + label + "]" : label);
      end = column + width;
    }
  }
  const std::size_t from = first_marked_column > columns_around_mark ? first_marked_column - columns_around_mark : 0;
  return write_rows(std::move(rows), from, from + 2 * columns_around_mark + 1);
}

std::string draw_grid(const Timeline& timeline, bool label_chunks) {
  constexpr std::int64_t most_columns = 2000;
  std::int64_t unit = 0;
  for (const auto& actions : timeline.stages) {
    for (const TimedAction& timed : actions) unit = std::gcd(unit, std::gcd(timed.start, timed.end));
  }
  unit = std::max<std::int64_t>(unit, 1);
  if (timeline.makespan / unit > most_columns) return "";
  std::vector<Row> rows(timeline.stages.size());
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    for (const TimedAction& timed : timeline.stages[stage]) {
      std::string label = to_string(timed.action);
      if (!label_chunks) label = label.front() + label.substr(label.find('.') + 1);
      if (timed.action.kind == ComputeKind::Update)
        label = "U";
      else if (timed.end == timed.start)
        continue;
      rows[stage].put(static_cast<std::size_t>(timed.start / unit),
                      static_cast<std::size_t>((timed.end - timed.start) / unit), label);
    }
  }
  return write_rows(std::move(rows), 0, static_cast<std::size_t>(-1));
}

}  // namespace strata::program
