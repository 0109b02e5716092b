// A plugin written without STRATA_PLUGIN, which would not let these defects compile. DEFECT_NONE is a good one: it
// shows that what fails in the others is their defect.
#include <strata/plugin.hpp>

#include <stdexcept>

#if defined(DEFECT_FAST_MATH) && defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define STRATA_PLUGIN_NAME DEFECT_NAME
#define STRATA_PLUGIN_VERSION "1"
#define STRATA_PLUGIN_DESCRIPTION "Broken on purpose"
#define STRATA_PLUGIN_AUTHOR "tests"
#define STRATA_PLUGIN_LICENSE "none"
#define STRATA_PLUGIN_EQUIVALENCE "bitwise"

#if defined(DEFECT_UNKNOWN_KIND)
#define STRATA_PLUGIN_KIND "wizard"
#else
#define STRATA_PLUGIN_KIND "scheduler"
#endif
#if defined(DEFECT_UNKNOWN_CAPABILITY)
#define STRATA_PLUGIN_CAPABILITIES "splits_backwards"
#else
#define STRATA_PLUGIN_CAPABILITIES ""
#endif
#if defined(DEFECT_OTHER_STATE_VERSION)
#define STRATA_PLUGIN_STATE_VERSION 2
#else
#define STRATA_PLUGIN_STATE_VERSION 1
#endif
#if defined(DEFECT_OLDER_MAJOR)
#undef STRATA_ABI_MAJOR
#define STRATA_ABI_MAJOR 0
#elif defined(DEFECT_NEWER_MINOR)
#undef STRATA_ABI_MINOR
#define STRATA_ABI_MINOR 999
#elif defined(DEFECT_OTHER_LIBTORCH)
#undef STRATA_FINGERPRINT_LIBTORCH
#define STRATA_FINGERPRINT_LIBTORCH "1.13.1"
#endif
#if defined(DEFECT_BAD_OPTION)
#define OPTIONS_JSON                                                                               \
  "{\"name\":\"depth\",\"type\":\"integer\",\"default\":\"9\",\"limits\":\"max=8\",\"unit\":\"\"," \
  "\"documentation\":\"Too deep.\"},null"
#else
#define OPTIONS_JSON "null"
#endif
#if defined(DEFECT_NO_SECTION)
#define SECTION ".data.rel.ro"
#else
#define SECTION ".strata"
#endif

namespace {

class Broken : public strata::Plugin {};

#if defined(DEFECT_FAST_MATH)
// As crtfastmath.o does, which some compilers link into every library with -ffast-math.
[[gnu::constructor]] void set_fast_math() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{1} << 24));
#endif
}
#endif

#if defined(DEFECT_NOT_JSON)
[[gnu::section(SECTION), gnu::used]] const char manifest[] = "kind: scheduler";
#else
[[gnu::section(SECTION), gnu::used]] const char manifest[] = STRATA_MANIFEST(OPTIONS_JSON);
#endif

}  // namespace

#if defined(DEFECT_UNDEFINED_SYMBOL)
extern "C" void strata_tests_function_that_nobody_has();
#endif

#if !defined(DEFECT_NO_ENTRY)
namespace {

strata::Plugin* create(strata::PluginContext& /*context*/) {
#if defined(DEFECT_THROWS)
  throw std::runtime_error("out of ideas");
#elif defined(DEFECT_RETURNS_NOTHING)
  return nullptr;
#else
#if defined(DEFECT_UNDEFINED_SYMBOL)
  strata_tests_function_that_nobody_has();
#endif
  return new Broken;
#endif
}

strata::PluginEntry make_entry() {
  strata::PluginEntry entry{sizeof(strata::PluginEntry), STRATA_ABI_MAJOR, STRATA_ABI_MINOR, manifest, create};
#if defined(DEFECT_SMALL_ENTRY)
  entry.struct_size = 16;
#elif defined(DEFECT_OTHER_ENTRY_ABI)
  entry.abi_minor = 999;
#elif defined(DEFECT_OTHER_MANIFEST)
  entry.manifest = "{}";
#elif defined(DEFECT_NO_FACTORY)
  entry.create = nullptr;
#endif
  return entry;
}

}  // namespace

const strata::PluginEntry* strata_plugin_entry_v1() {
#if defined(DEFECT_NULL_ENTRY)
  return nullptr;
#endif
  static const strata::PluginEntry entry = make_entry();
  return &entry;
}
#endif
