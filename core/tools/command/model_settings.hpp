#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// Returns the settings for --model NAME, NAME:PRESET or NAME:FOLDER; throws nothing.
std::vector<std::string> model_settings(const std::string& model);

}  // namespace strata::cli
