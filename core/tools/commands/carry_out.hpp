#pragma once
#include <functional>
#include <string>

namespace strata::cli {

// What a program does with the command that it has read: carries it out, with a log on standard error from this level
// on, prints an error as one line, and returns the exit status.
int carry_out(const std::string& log_level, const std::function<int()>& command);

}  // namespace strata::cli
