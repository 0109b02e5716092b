// defines: parse_integer, parse_number, parse_boolean, spell_number
// Text to number and back, the same on every machine: no locale, no octal, no rounding to fit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::config {

// 4, -1, 1_000, 5e8, 1.5e3: exactly a 64-bit integer, else nothing. 2.0 is none: an integer has no decimal point unless
// an exponent moves it away.
std::optional<std::int64_t> parse_integer(std::string_view text);

// 6e-4, .5, 3, 1_000.5; finite, else nothing.
std::optional<double> parse_number(std::string_view text);

// true, false.
std::optional<bool> parse_boolean(std::string_view text);

// The fewest digits that read back as the same number: 0.0006, 500000000, 1e-08.
std::string spell_number(double value);

}  // namespace strata::config
