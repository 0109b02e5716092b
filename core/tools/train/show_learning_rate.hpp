#pragma once
#include <ostream>

#include "step/learning_rate.hpp"
#include "text/table.hpp"

namespace strata::cli {

// The output of `strata config show FILE --lr`. Csv and Json: the rate of every step. Table: a drawing, and the rate at
// the steps where the schedule changes and some in between. Markdown: only these steps.
void write_learning_rates(const step::RunLearningRate& rate, text::TableFormat format, std::ostream& output);

}  // namespace strata::cli
