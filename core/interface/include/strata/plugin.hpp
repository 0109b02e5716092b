// A plugin is a shared library with one class derived from the interface of its kind. Its source ends with
//   STRATA_PLUGIN(MyPartitioner, MyOptions, MY_OPTIONS)        (see <strata/options.hpp>)
//   STRATA_PLUGIN(MyPartitioner, MyOptions)                    for STRATA_NO_OPTIONS(MyOptions)
// Its CMakeLists.txt calls strata_add_plugin, which sets name, kind, version and so on.
#pragma once
#include <strata/capability.hpp>
#include <strata/export.hpp>
#include <strata/fingerprint.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/plugin_kind.hpp>

#include <cstdint>
#include <type_traits>

namespace strata {

class RunContext;   // <strata/run_context.hpp>
class StateReader;  // <strata/state_stream.hpp>
class StateWriter;

// Base class of all kinds. Marks in the headers: [collective]: all ranks of the group or run make the same calls in the
// same order; [any rank]: each rank calls it alone, so it must not communicate; [any thread]: thread-safe.
//
// The engine creates a plugin with `new Class(context, options)`; an exception from the
// constructor ends the run with an error that names the plugin. A plugin library is never unloaded.
//
// No call may permanently change state that the process shares: signal handlers, the rounding mode and the treatment of
// denormal numbers, locale, umask, environment, working folder, standard streams, libtorch's defaults. No call may end
// the process: a plugin that cannot continue throws. The engine reports violations with the plugin's name.
class STRATA_EXPORT Plugin {
 public:
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  virtual ~Plugin();
  // Passes the run's device and memory. Called once in a run, on every plugin in order of creation, before its first
  // work; not called by commands that only query a plugin, such as `strata schedule`. `run` stays valid until
  // shutdown() has returned. [any rank]
  virtual void run_begins(RunContext& run);
  // Joins threads, drains streams, closes files. Called once, in reverse order of creation, while all plugins still
  // exist. May block as long as the process reads or writes a disk or waits for other ranks, and for a minute while it
  // computes; if it does none of that for five seconds, the engine ends the process with an error that names the
  // plugin. Only the destructor is called after it; the destructor must not throw. [any rank]
  virtual void shutdown();
  // Writes the state that a resumed run needs, apart from the tensors that the engine saves. A plugin without such
  // state overrides neither save() nor load(). Called between steps. [any rank]
  virtual void save(StateWriter& writer) const;
  // Reads what save() wrote. `version` is state_version() of the plugin that saved. Throws UserError if it is newer
  // than this plugin's. [any rank]
  virtual void load(StateReader& reader, int version);
  // Returns the version of the format that save() writes, equal to STATE_VERSION in strata_add_plugin; 1 unless
  // overridden. A newer plugin must read older versions.
  virtual int state_version() const;

 protected:
  Plugin() = default;
};

// Result of the entry function. Its fields are frozen; new fields are appended and guarded by struct_size.
struct PluginEntry {
  std::uint32_t struct_size;  // sizeof(PluginEntry) when the plugin was built
  std::uint32_t abi_major;
  std::uint32_t abi_minor;
  const char* manifest;                       // text in section .strata; this reference keeps it under --gc-sections
  Plugin* (*create)(PluginContext& context);  // may throw; the caller owns the result
};

}  // namespace strata

// Returns the plugin's entry; the only symbol that a plugin exports.
extern "C" STRATA_EXPORT const strata::PluginEntry* strata_plugin_entry_v1();

// Manifest as one JSON string literal; strata_add_plugin defines the identity and the equivalence.
// clang-format off
#define STRATA_MANIFEST(options_json)                                     \
  "{\"format\":1"                                                         \
  ",\"kind\":\"" STRATA_PLUGIN_KIND "\""                                  \
  ",\"name\":\"" STRATA_PLUGIN_NAME "\""                                  \
  ",\"version\":\"" STRATA_PLUGIN_VERSION "\""                            \
  ",\"description\":\"" STRATA_PLUGIN_DESCRIPTION "\""                    \
  ",\"author\":\"" STRATA_PLUGIN_AUTHOR "\""                              \
  ",\"license\":\"" STRATA_PLUGIN_LICENSE "\""                            \
  ",\"capabilities\":\"" STRATA_PLUGIN_CAPABILITIES "\""                  \
  ",\"equivalence\":\"" STRATA_PLUGIN_EQUIVALENCE "\""                    \
  ",\"state_version\":" STRATA_TEXT_OF(STRATA_PLUGIN_STATE_VERSION)       \
  ",\"abi\":\"" STRATA_ABI_TEXT "\""                                      \
  ",\"libtorch\":\"" STRATA_FINGERPRINT_LIBTORCH "\""                     \
  ",\"standard_library\":\"" STRATA_FINGERPRINT_STANDARD_LIBRARY "\""     \
  ",\"cxx11_abi\":\"" STRATA_FINGERPRINT_CXX11_ABI "\""                   \
  ",\"sanitizer\":\"" STRATA_FINGERPRINT_SANITIZER "\""                   \
  ",\"compiler\":\"" STRATA_FINGERPRINT_COMPILER "\""                     \
  ",\"options\":[" options_json "]}"
// clang-format on

// Defines the manifest and the entry of the plugin `Class` with options `Options`, followed by the option list.
#define STRATA_PLUGIN(Class, Options, ...)                                                                             \
  static_assert(::strata::plugin_kind_from_string(STRATA_PLUGIN_KIND).has_value(), "KIND is not a kind of plugin");    \
  static_assert(                                                                                                       \
      std::is_base_of_v<::strata::InterfaceOf<::strata::plugin_kind_from_string(STRATA_PLUGIN_KIND).value()>::type,    \
                        Class>,                                                                                        \
      #Class " does not derive from the interface of its kind, " STRATA_PLUGIN_KIND);                                  \
  static_assert(::strata::are_capabilities_of(STRATA_PLUGIN_KIND, STRATA_PLUGIN_CAPABILITIES),                         \
                "CAPABILITIES holds one that is not of this kind, see <strata/capability.hpp>");                       \
  static_assert(::strata::option_list::is_plain(STRATA_PLUGIN_NAME STRATA_PLUGIN_VERSION STRATA_PLUGIN_DESCRIPTION     \
                                                    STRATA_PLUGIN_AUTHOR STRATA_PLUGIN_LICENSE),                       \
                "the plugin's texts may hold no double quote, backslash or control character");                        \
  static_assert(Options::schema == __VA_OPT__(__VA_ARGS__(STRATA_OPTION_JSON)) "null",                                 \
                #Options " was made from another list of options than the one given here");                            \
  namespace {                                                                                                          \
  [[gnu::section(".strata"), gnu::used]] const char strata_plugin_manifest[] =                                         \
      STRATA_MANIFEST(__VA_OPT__(__VA_ARGS__(STRATA_OPTION_JSON)) "null");                                             \
  ::strata::Plugin* strata_plugin_create(::strata::PluginContext& context) {                                           \
    return new Class(context, Options::read(context.options()));                                                       \
  }                                                                                                                    \
  constexpr ::strata::PluginEntry strata_plugin_entry{sizeof(::strata::PluginEntry), STRATA_ABI_MAJOR,                 \
                                                      STRATA_ABI_MINOR, strata_plugin_manifest, strata_plugin_create}; \
  }                                                                                                                    \
  extern "C" STRATA_EXPORT const ::strata::PluginEntry* strata_plugin_entry_v1() {                                     \
    return &strata_plugin_entry;                                                                                       \
  }
