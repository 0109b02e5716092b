#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// `strata plugins check`: replaces this process by the program strata_conformance from the same folder, with these
// arguments. Throws EnvironmentError if it does not exist; it is part of the SDK.
int check_command(const std::vector<std::string>& arguments);

}  // namespace strata::cli
