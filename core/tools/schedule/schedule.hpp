// `strata schedule show NAME...`: draws schedulers' plans, without a model or a run.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "program/timeline.hpp"

namespace strata::schedule {

struct ShownScheduler {
  std::string name;
  const Scheduler& scheduler;
  int chunks_per_stage = 1;
};

// Checks each schedule for `stages` and `micro_batches` with one layer per chunk, simulates it and draws it as
// `format`: text, svg or json. `cost` is that of a chunk if one scheduler is shown; of a whole stage if several are, so
// that they do equal work with any number of chunks, and a table of all follows. Returns the exit status. Throws
// UserError if a schedule does not support the shape, is invalid, or is too large to draw.
int schedule_show(const std::vector<ShownScheduler>& schedulers, int stages, int micro_batches,
                  const program::ChunkCost& cost, const std::string& format, std::ostream& out);

}  // namespace strata::schedule
