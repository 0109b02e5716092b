// Gate one: what a plugin says of itself, read from section .strata of its file. Nothing of the plugin is loaded.
#pragma once
#include <strata/capability.hpp>
#include <strata/fingerprint.hpp>
#include <strata/options.hpp>
#include <strata/plugin_kind.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::plugin_host {

// What a plugin's results must equal. A larger kind is a weaker promise.
struct Equivalence {
  enum class Kind { Bitwise, Reassociation, Tolerance, Simulated };
  Kind kind = Kind::Bitwise;
  double bound = 0.0;     // of Tolerance: relative
  std::string reference;  // of Simulated: what the plugin names as its reference
};
std::string to_string(const Equivalence& equivalence);  // "tolerance(0.001)"

struct AbiVersion {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  auto operator<=>(const AbiVersion&) const = default;
};
std::string to_string(const AbiVersion& version);  // "1.0"
// Why a plugin of one version cannot be loaded by a host of another, to be read after the file's name; empty when it
// can.
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
  int state_version = 1;
  AbiVersion abi;
  Fingerprint fingerprint;
  std::vector<OptionSpec> options;
  std::string text;  // as read from the file
};

// 1 to 64 of a-z, 0-9 and _, not beginning with _.
bool is_plugin_name(const std::string& name);

// "partitioner/sharded", or "" while the kind and name could not be read.
std::string full_name(const Manifest& manifest);

// Reads `text` into `manifest` and checks it against this host: form, SDK ABI (the host's), fingerprint, kind,
// capabilities, options. Unknown fields are tolerated, missing ones are not. Throws DamagedFile; what was read until
// then stays in `manifest`, so that a list can name a plugin that cannot be used.
void parse_manifest(const std::string& text, Manifest& manifest);

}  // namespace strata::plugin_host
