// What Linux and the allocator say of this process.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace strata::conformance {

// Settings that other code depends on, by what they are called.
using Facts = std::map<std::string, std::string>;
Facts facts_of_this_process();
Facts facts_of_this_thread();
// Throws Failure where `who` changed one.
void require_same(const Facts& before, const Facts& after, const std::string& who);

int threads_of_this_process();
int open_files_of_this_process();
// Bytes that malloc gave and that were not given back; nothing under an allocator that does not say (a sanitizer's).
std::optional<std::int64_t> allocated_bytes();
std::int64_t resident_bytes();

}  // namespace strata::conformance
