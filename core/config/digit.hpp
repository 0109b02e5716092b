#pragma once

namespace strata::config {

// Whatever the locale.
inline bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

}  // namespace strata::config
