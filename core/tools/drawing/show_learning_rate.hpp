#pragma once
#include <ostream>

#include "config/show.hpp"
#include "step/learning_rate.hpp"

namespace strata::config {

// The output of `strata config show FILE --lr`. Csv and Json: the rate of every step. Table: a drawing, and the rate at
// the steps where the schedule changes and some in between. Markdown: only these steps.
void write_learning_rates(const runtime::RunLearningRate& rate, ListingFormat format, std::ostream& output);

}  // namespace strata::config
