#pragma once

#include <string>

// The good plugin of these tests.
inline const std::string little = LITTLE_FOLDER "/libstrata_scheduler_little.so";
