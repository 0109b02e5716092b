#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// `strata plugins check`: becomes the program strata_conformance that lies beside this one, with these arguments.
// Throws EnvironmentError when it is not there: it comes with the SDK, and nothing else of Strata needs it.
int check_command(const std::vector<std::string>& arguments);

}  // namespace strata::cli
