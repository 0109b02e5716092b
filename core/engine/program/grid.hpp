// Draws the stage x time grid of a schedule in messages.
#pragma once
#include "program/timeline.hpp"

#include <string>
#include <vector>

namespace strata::program {

// A marked action of a stage's order, by index. An index past the end marks the position after the last action.
struct Mark {
  int stage = 0;
  std::size_t index = 0;
};

// Draws one line per stage, each action in the column of its start (forward 1, backward 2); "--" continues a longer
// action, a dot is an idle unit. An Update takes no time and follows the action that ends then. Actions that can never
// run follow the others without a gap. Marked actions are in brackets, and their line ends with "<-- here". Long grids
// show only the columns around the first mark. Also draws invalid orders, for error messages.
std::string draw_grid(const ComputeOrders& orders, const Placement& placement, const std::vector<Mark>& marks);

// Draws a run with any costs, with times divided by their greatest common divisor. Without `label_chunks`, labels
// omit the chunk: "F2". An Update is a "U" after the action that ends then. Draws all columns; "" for more than
// 2000.
std::string draw_grid(const Timeline& timeline, bool label_chunks);

}  // namespace strata::program
