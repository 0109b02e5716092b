// The build properties that engine and plugin must share in order to exchange C++ objects. The macros have the values
// of the translation unit that uses them: the engine's in host_fingerprint(), the plugin's in its manifest.
#pragma once
#include <torch/headeronly/version.h>
#include <strata/export.hpp>

#include <cstddef>
#include <string>

// Version of the headers in <strata/...>. A plugin loads only if both numbers equal the host's: vectors of these
// structs and inline functions cross the boundary, so even an appended member breaks compatibility. Every change of the
// headers raises the minor number; the test interface_layout checks it.
#define STRATA_ABI_MAJOR 3
#define STRATA_ABI_MINOR 5

#define STRATA_TEXT_OF_(x) #x
#define STRATA_TEXT_OF(x) STRATA_TEXT_OF_(x)
#define STRATA_ABI_TEXT STRATA_TEXT_OF(STRATA_ABI_MAJOR) "." STRATA_TEXT_OF(STRATA_ABI_MINOR)

#define STRATA_FINGERPRINT_LIBTORCH TORCH_VERSION

#if defined(_LIBCPP_VERSION)
#define STRATA_FINGERPRINT_STANDARD_LIBRARY "libc++ ABI " STRATA_TEXT_OF(_LIBCPP_ABI_VERSION)
#define STRATA_FINGERPRINT_CXX11_ABI "none"
#elif defined(_GLIBCXX_DEBUG)
#define STRATA_FINGERPRINT_STANDARD_LIBRARY "libstdc++ in debug mode"
#define STRATA_FINGERPRINT_CXX11_ABI STRATA_TEXT_OF(_GLIBCXX_USE_CXX11_ABI)
#else
#define STRATA_FINGERPRINT_STANDARD_LIBRARY "libstdc++"
#define STRATA_FINGERPRINT_CXX11_ABI STRATA_TEXT_OF(_GLIBCXX_USE_CXX11_ABI)
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STRATA_FINGERPRINT_SANITIZER "address"
#elif __has_feature(thread_sanitizer)
#define STRATA_FINGERPRINT_SANITIZER "thread"
#elif __has_feature(memory_sanitizer)
#define STRATA_FINGERPRINT_SANITIZER "memory"
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define STRATA_FINGERPRINT_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define STRATA_FINGERPRINT_SANITIZER "thread"
#endif
#if !defined(STRATA_FINGERPRINT_SANITIZER)
#define STRATA_FINGERPRINT_SANITIZER "none"
#endif

#if defined(__clang__)
#define STRATA_FINGERPRINT_COMPILER \
  "clang " STRATA_TEXT_OF(__clang_major__) "." STRATA_TEXT_OF(__clang_minor__) "." STRATA_TEXT_OF(__clang_patchlevel__)
#else
#define STRATA_FINGERPRINT_COMPILER \
  "gcc " STRATA_TEXT_OF(__GNUC__) "." STRATA_TEXT_OF(__GNUC_MINOR__) "." STRATA_TEXT_OF(__GNUC_PATCHLEVEL__)
#endif

namespace strata {

struct EnumLayout {
  enum Plain { First };  // has the type that the compiler chooses
};
static_assert(sizeof(EnumLayout::Plain) == sizeof(int),
              "compiled with -fshort-enums, which changes the layout of types that a plugin shares with libtorch and "
              "the engine: leave it out");

struct Fingerprint {
  std::string libtorch;          // "2.11.0"
  std::string standard_library;  // "libstdc++"
  std::string cxx11_abi;         // value of _GLIBCXX_USE_CXX11_ABI
  std::string sanitizer;         // "none", "address", "thread", "memory"
  std::string compiler;          // "gcc 12.2.0": recorded, not compared
};

// Returns the fingerprint of libstrata_interface.so.
STRATA_EXPORT Fingerprint host_fingerprint();

}  // namespace strata
