// What the libFuzzer targets of this folder share. A reader may throw Strata's errors for files; anything else is
// found, and so is the word "exception" of a library in an error's text, unless the input holds it.
#pragma once
#include <strata/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

inline std::string input;

template <typename Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const UserError& error) {
    const std::string text = error.what();
    const bool from_a_library = text.find("exception") != std::string::npos;
    if ((from_a_library && input.find("exception") == std::string::npos) || text.size() > 3000) __builtin_trap();
  }
}

}  // namespace strata

#define STRATA_FUZZ(text)                                                              \
  static void fuzz(const std::string& text);                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) { \
    strata::input.assign(reinterpret_cast<const char*>(bytes), size);                  \
    fuzz(strata::input);                                                               \
    return 0;                                                                          \
  }                                                                                    \
  static void fuzz(const std::string& text)
