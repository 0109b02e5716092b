#pragma once
#include <sys/random.h>
#include <strata/error.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "interface/src/system_error.hpp"

namespace strata::group {

// Returns 128 random bits as 32 hexadecimal digits. Throws EnvironmentError.
inline std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  ssize_t got = -1;
  while ((got = getrandom(bytes.data(), bytes.size(), 0)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(bytes.size()))
    throw EnvironmentError("the system provides no random numbers: {}", describe_errno(errno));
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace strata::group
