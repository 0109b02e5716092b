// The cases of every kind, a file each; general_cases() puts them in this order.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// The two that decide whether later ones can be run.
inline constexpr std::string_view loading_case = "general.loads";
inline constexpr std::string_view creating_case = "general.defaults_create";

// Whether the text of loading_case blames a library that this machine does not have.
bool lacks_a_library(const std::string& text);

std::vector<Case> file_cases();      // the file, and loading it
std::vector<Case> creation_cases();  // instances and options
std::vector<Case> resource_cases();  // memory, files, threads, process exit
std::vector<Case> state_cases();     // save and load

}  // namespace strata::conformance
