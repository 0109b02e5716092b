// The values of a resolved config, one by one: what `strata config show` prints, ranks compare, checkpoints record and
// resumed runs check.
#pragma once
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::config {

// Value of a key or a plugin's option, with its origin.
struct Resolved {
  std::string path;
  OptionValue value;
  std::string origin;
};

// Returns all values that have an origin, in the order of keys(), read from the fields of `run`.
std::vector<Resolved> listing(const RunConfig& run);

}  // namespace strata::config
