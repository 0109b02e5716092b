#include "config/scalar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace strata::config {
namespace {

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// The number without its underscores; nothing when it has characters of no number or an underscore that is not between
// digits. (from_chars alone would read "inf", "nan" and the front of "5 apples".)
std::optional<std::string> plain_number(std::string_view text) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return {};
  }
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '_') {
      if (at == 0 || at + 1 == text.size() || !is_digit(text[at - 1]) || !is_digit(text[at + 1])) return {};
    } else if (is_digit(letter) || std::string_view("+-.eE").find(letter) != std::string_view::npos) {
      plain += letter;
    } else {
      return {};
    }
  }
  return plain;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  if (!plain) return {};
  const std::size_t e = plain->find_first_of("eE");
  std::string mantissa = plain->substr(0, e);
  int exponent = 0;
  if (e != std::string::npos) {
    std::string_view digits = std::string_view(*plain).substr(e + 1);
    if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) return {};
  }
  const std::size_t point = mantissa.find('.');
  if (point != std::string::npos) {
    if (e == std::string::npos || mantissa.size() < 2) return {};
    exponent -= static_cast<int>(mantissa.size() - point - 1);
    mantissa.erase(point, 1);
  }
  if (mantissa.empty() || !is_digit(mantissa.back())) return {};
  const bool zero = mantissa.find_first_not_of("-0") == std::string::npos;
  for (; !zero && exponent < 0; ++exponent) {  // 1.50e1: zeros at the end may leave, other digits not
    if (mantissa.back() != '0') return {};
    mantissa.pop_back();
  }
  if (!zero && exponent > 0) {
    if (exponent > 18) return {};
    mantissa.append(static_cast<std::size_t>(exponent), '0');
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(mantissa.data(), mantissa.data() + mantissa.size(), value);
  if (error != std::errc() || end != mantissa.data() + mantissa.size()) return {};
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  const std::optional<std::string> plain = plain_number(text);
  if (!plain) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(plain->data(), plain->data() + plain->size(), value);
  if (error != std::errc() || end != plain->data() + plain->size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<bool> parse_boolean(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return {};
}

std::string spell_number(double value) {
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value,
                                    plain ? std::chars_format::fixed : std::chars_format::scientific);
  return {text.data(), result.ptr};
}

}  // namespace strata::config
