#pragma once
#include <ostream>

#include "config/show.hpp"
#include "step/learning_rate.hpp"

namespace strata::config {

// What `strata config show FILE --lr` prints. Csv and Json: the rate of every step of the run. Table: a drawing, and
// the steps where the schedule turns with some in between; Markdown: those steps.
void write_learning_rates(const runtime::RunLearningRate& rate, ListingFormat format, std::ostream& output);

}  // namespace strata::config
