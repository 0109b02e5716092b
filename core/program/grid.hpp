// The stage x time grid in messages about a schedule.
#pragma once
#include "program/timeline.hpp"

#include <string>
#include <vector>

namespace strata::runtime {

// One action of an order, `index` counting from its front. An index past the end marks the place behind the last
// action.
struct Mark {
  int stage = 0;
  std::size_t index = 0;
};

// One line per stage, each action in the column of its start (forward 1, backward 2); a longer one goes on as "--", a
// dot is an idle unit. Actions that can never run follow the others without a gap. Marked ones stand in brackets, and
// their line ends in "<-- here". Long grids show the columns around the first mark. Draws wrong orders too.
std::string draw_grid(const ComputeOrders& orders, const Placement& placement, const std::vector<Mark>& marks);

// The same for a run with any costs, times divided by their greatest common divisor. Labels leave the chunk out where
// each stage has one: "F2". Draws all columns; "" for more than 2000.
std::string draw_grid(const Timeline& timeline, bool label_chunks);

}  // namespace strata::runtime
