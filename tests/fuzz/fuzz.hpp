// What the libFuzzer targets of this folder share. A reader may throw Strata's errors for files; anything else is
// found.
#pragma once
#include <strata/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

template <typename Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const UserError& error) {
    const std::string text = error.what();
    if (text.find("exception") != std::string::npos || text.size() > 3000) __builtin_trap();
  }
}

}  // namespace strata

#define STRATA_FUZZ(text)                                                              \
  static void fuzz(const std::string& text);                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) { \
    fuzz(std::string(reinterpret_cast<const char*>(bytes), size));                     \
    return 0;                                                                          \
  }                                                                                    \
  static void fuzz(const std::string& text)
