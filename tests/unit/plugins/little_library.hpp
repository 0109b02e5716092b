#pragma once
#include <string>
#include <vector>

#include "plugins/registry.hpp"

using Folders = std::vector<strata::plugins::SearchFolder>;

// The good plugin of these tests.
inline const std::string little = LITTLE_FOLDER "/libstrata_scheduler_little.so";
