// The cases for every kind, one file each; general_cases() returns them in this order.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// The two cases that decide whether later ones can run.
inline constexpr std::string_view loading_case = "general.loads";
inline constexpr std::string_view creating_case = "general.defaults_create";

// True if the text of loading_case is about a library that this machine lacks.
bool lacks_a_library(const std::string& text);

std::vector<Case> file_cases();      // the file, and loading it
std::vector<Case> creation_cases();  // instances and options
std::vector<Case> resource_cases();  // memory, files, threads, process exit
std::vector<Case> state_cases();     // save and load

}  // namespace strata::conformance
