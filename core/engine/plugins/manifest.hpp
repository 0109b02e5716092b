// First gate: the manifest of a plugin, read from section .strata of its file without loading the plugin.
#pragma once
#include <strata/capability.hpp>
#include <strata/fingerprint.hpp>
#include <strata/options.hpp>
#include <strata/plugin_kind.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::plugins {

// Promise of how closely a plugin reproduces the reference results. A larger kind is a weaker promise.
struct Equivalence {
  enum class Kind { Bitwise, Reassociation, Tolerance, Simulated };
  Kind kind = Kind::Bitwise;
  double bound = 0.0;     // relative bound, for Tolerance
  std::string reference;  // plugin with the reference results, for Simulated
};
std::string to_string(const Equivalence& equivalence);  // "tolerance(0.001)"

// Other promise for a value of an option, a choice or a switch.
struct EquivalenceWith {
  std::string option;
  std::string value;
  Equivalence equivalence;
};

struct AbiVersion {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  auto operator<=>(const AbiVersion&) const = default;
};
std::string to_string(const AbiVersion& version);  // "1.0"
// Returns why a host cannot load a plugin of another ABI version, to be appended to the file's name; empty if it can.
std::string abi_obstacle(const AbiVersion& plugin, const AbiVersion& host);

struct Manifest {
  PluginKind kind = PluginKind::Device;
  std::string name;  // "sharded"
  std::string version;
  std::string description;
  std::string author;
  std::string license;
  std::vector<Capability> capabilities;
  Equivalence equivalence;
  std::vector<EquivalenceWith> equivalence_with;
  int state_version = 1;
  AbiVersion abi;
  Fingerprint fingerprint;
  std::vector<OptionSpec> options;
  std::string text;  // text as read from the file
};

// Returns the weakest promise that holds with these options.
Equivalence equivalence_of(const Manifest& manifest, const OptionValues& options);
// Returns "reassociation; tolerance(0.05) with weights_on_wire=int8".
std::string equivalences(const Manifest& manifest);

// True for 1 to 64 characters of a-z, 0-9 and _, not starting with _.
bool is_plugin_name(const std::string& name);

std::string full_name(PluginKind kind, const std::string& name);  // "partitioner/sharded"
std::string full_name(const Manifest& manifest);                  // "" if kind and name could not be read

// Parses `text` into `manifest` and checks it against this host: format, ABI, fingerprint, kind, capabilities, options.
// Unknown fields are ignored; missing fields are errors. Throws DamagedFile; fields read before the error stay in
// `manifest`, so that a listing can name an unusable plugin.
void parse_manifest(const std::string& text, Manifest& manifest);

}  // namespace strata::plugins
