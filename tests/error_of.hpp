// What a call throws, and what a test looks for in its text.
#pragma once
#include <strata/error.hpp>

#include <string>

#include "catch.hpp"

// Catch2 v3 gave these other names.
#if __has_include(<catch2/catch_all.hpp>)
using Catch::Approx;
inline auto Contains(const std::string& part) {
  return Catch::Matchers::ContainsSubstring(part);
}
#else
using Catch::Matchers::Contains;
#endif

// The text of the Expected that `call` throws, which must be one line; empty when it throws nothing. An error of
// another class goes on, and fails the test.
template <typename Expected = strata::UserError, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "";
}
