#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// The settings that --model NAME, NAME:PRESET or NAME:FOLDER stands for; throws nothing.
std::vector<std::string> model_settings(const std::string& model);

}  // namespace strata::cli
