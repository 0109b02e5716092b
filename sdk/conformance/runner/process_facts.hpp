// State of this process, from Linux and the allocator.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace strata::conformance {

// Settings that other code depends on, by name.
using Facts = std::map<std::string, std::string>;
Facts facts_of_this_process();
Facts facts_of_this_thread();
// Throws Failure if `who` changed a setting.
void require_same(const Facts& before, const Facts& after, const std::string& who);

int threads_of_this_process();
int open_files_of_this_process();
// Returns the bytes allocated by malloc; empty with an allocator that does not report them (a sanitizer's).
std::optional<std::int64_t> allocated_bytes();
std::int64_t resident_bytes();

}  // namespace strata::conformance
