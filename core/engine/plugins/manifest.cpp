#include "plugins/manifest.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "plugins/elf_section.hpp"
#include "text/json.hpp"
#include "text/nearest.hpp"
#include "text/printable.hpp"

namespace strata::plugins {
namespace {

using nlohmann::json;

const json& field(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw DamagedFile("has a manifest without the field '" + std::string(name) + "'");
  return *found;
}

std::string text_field(const json& object, const char* name) {
  const json& value = field(object, name);
  if (!value.is_string()) throw DamagedFile("has a manifest whose field '" + std::string(name) + "' is not text");
  std::string text = value.get<std::string>();
  if (text::one_line(text, text.size()) != text)
    throw DamagedFile("has a manifest whose field '" + std::string(name) +
                      "' holds a control character, which terminals obey; write printable text");
  return text;
}

constexpr text::JsonLimits manifest_limits{std::size_t{1} << 20, std::size_t{1} << 14};

int integer_field(const json& object, const char* name) {
  const json& value = field(object, name);
  if (!value.is_number_integer() || value < 0 || value > 1000000) {
    throw DamagedFile("has a manifest whose field '" + std::string(name) + "' is not a version number");
  }
  return value.get<int>();
}

AbiVersion read_abi(const json& object) {
  const std::string text = text_field(object, "abi");
  AbiVersion version;
  const char* const end = text.data() + text.size();
  const auto [dot, major_error] = std::from_chars(text.data(), end, version.major);
  if (major_error == std::errc() && dot != end && *dot == '.') {
    const auto [rest, minor_error] = std::from_chars(dot + 1, end, version.minor);
    if (minor_error == std::errc() && rest == end) return version;
  }
  throw DamagedFile("has a manifest whose field 'abi' is '" + text + "', not two numbers as in " STRATA_ABI_TEXT);
}

void check_fingerprint(const Fingerprint& plugin) {
  const Fingerprint host = host_fingerprint();
  const auto check = [](const char* what, const std::string& built, const std::string& here) {
    if (built == here) return;
    throw DamagedFile("was built with " + std::string(what) + " " + built + ", but this Strata with " + here +
                      "; rebuild the plugin against this Strata");
  };
  check("libtorch", plugin.libtorch, host.libtorch);
  check("the standard library", plugin.standard_library, host.standard_library);
  check("_GLIBCXX_USE_CXX11_ABI", plugin.cxx11_abi, host.cxx11_abi);
  check("sanitizer", plugin.sanitizer, host.sanitizer);
}

std::vector<Capability> read_capabilities(const json& object, PluginKind kind) {
  std::vector<Capability> found;
  std::istringstream names(text_field(object, "capabilities"));
  for (std::string name; std::getline(names, name, ',');) {
    const std::optional<Capability> capability = capability_from_string(name);
    if (!capability) {
      std::vector<std::string> known;
      for (const CapabilityInfo& info : capabilities) known.emplace_back(info.name);
      throw DamagedFile("declares the unknown capability '" + name + "': " + text::suggestion(name, known));
    }
    const PluginKind owner = capabilities[static_cast<std::size_t>(*capability)].kind;
    if (owner != kind) {
      throw DamagedFile("is a " + std::string(to_string(kind)) + " but declares '" + name + "', a capability of a " +
                        std::string(to_string(owner)));
    }
    found.push_back(*capability);
  }
  return found;
}

Equivalence read_equivalence(const std::string& text) {
  if (text == "bitwise") return {};
  if (text == "reassociation") return {Equivalence::Kind::Reassociation, 0.0, ""};
  const std::size_t open = text.find('(');
  if (open != std::string::npos && text.size() > open + 2 && text.back() == ')') {
    const std::string inside = text.substr(open + 1, text.size() - open - 2);
    if (text.starts_with("simulated(")) return {Equivalence::Kind::Simulated, 0.0, inside};
    double bound = 0.0;
    const auto [end, error] = std::from_chars(inside.data(), inside.data() + inside.size(), bound);
    if (text.starts_with("tolerance(") && error == std::errc() && end == inside.data() + inside.size() && bound > 0.0 &&
        bound <= 1.0) {
      return {Equivalence::Kind::Tolerance, bound, ""};
    }
  }
  throw DamagedFile("declares the equivalence '" + text +
                    "'; it is bitwise, reassociation, tolerance(bound up to 1) or simulated(reference)");
}

// "reassociation, weights_on_wire=int8: tolerance(0.05), ..."
void read_equivalences(const json& object, Manifest& manifest) {
  const std::string text = text_field(object, "equivalence");
  std::size_t end = text.find(", ");
  manifest.equivalence = read_equivalence(text.substr(0, end));
  while (end != std::string::npos) {
    const std::size_t begin = end + 2, equals = text.find('=', begin), colon = text.find(": ", begin);
    end = text.find(", ", begin);
    if (equals == std::string::npos || colon == std::string::npos || equals > colon || colon > end)
      throw DamagedFile("declares the equivalence '" + text +
                        "'; after the first promise, each is OPTION=VALUE: PROMISE");
    manifest.equivalence_with.push_back(
        {text.substr(begin, equals - begin), text.substr(equals + 1, colon - equals - 1),
         read_equivalence(text.substr(colon + 2, end == std::string::npos ? end : end - colon - 2))});
  }
}

std::vector<OptionSpec> read_options(const json& object) {
  const json& list = field(object, "options");
  if (!list.is_array()) throw DamagedFile("has a manifest whose field 'options' is not a list");
  std::vector<OptionSpec> specs;
  for (const json& entry : list) {
    if (entry.is_null()) continue;  // the end of a macro's list
    if (!entry.is_object()) throw DamagedFile("has a manifest with an option that is not an object");
    OptionSpec spec;
    const std::string problem = read_option_spec(text_field(entry, "name"), text_field(entry, "type"),
                                                 text_field(entry, "default"), text_field(entry, "limits"),
                                                 text_field(entry, "unit"), text_field(entry, "documentation"), spec);
    if (!problem.empty()) throw DamagedFile("has a malformed schema: " + problem);
    specs.push_back(spec);
    const auto same_name = [&](const OptionSpec& other) { return other.name == specs.back().name; };
    if (std::count_if(specs.begin(), specs.end(), same_name) > 1) {
      throw DamagedFile("has the option '" + specs.back().name + "' twice");
    }
  }
  return specs;
}

}  // namespace

bool is_plugin_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name.front() != '_' &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

std::string to_string(const Equivalence& equivalence) {
  switch (equivalence.kind) {
    case Equivalence::Kind::Bitwise:
      return "bitwise";
    case Equivalence::Kind::Reassociation:
      return "reassociation";
    case Equivalence::Kind::Tolerance:
      return fmt::format("tolerance({:g})", equivalence.bound);
    case Equivalence::Kind::Simulated:
      return "simulated(" + equivalence.reference + ")";
  }
  throw Bug("an equivalence of no kind");
}

Equivalence equivalence_of(const Manifest& manifest, const OptionValues& options) {
  Equivalence weakest = manifest.equivalence;
  for (const EquivalenceWith& with : manifest.equivalence_with) {
    const OptionValue& value = options.value(with.option);
    const auto* const text = std::get_if<std::string>(&value);
    const auto* const on = std::get_if<bool>(&value);
    if (text != nullptr ? *text != with.value : on == nullptr || (with.value == "true") != *on) continue;
    const Equivalence& other = with.equivalence;
    if (other.kind > weakest.kind || (other.kind == weakest.kind && other.bound > weakest.bound)) weakest = other;
  }
  return weakest;
}

std::string equivalences(const Manifest& manifest) {
  std::string text = to_string(manifest.equivalence);
  for (const EquivalenceWith& with : manifest.equivalence_with)
    text += "; " + to_string(with.equivalence) + " with " + with.option + "=" + with.value;
  return text;
}

std::string to_string(const AbiVersion& version) {
  return format("{}.{}", version.major, version.minor);
}

std::string abi_obstacle(const AbiVersion& plugin, const AbiVersion& host) {
  if (plugin == host) return "";
  return "was built for plugin ABI " + to_string(plugin) + ", this Strata has " + to_string(host) +
         "; the two must be equal: " + (plugin > host ? "update Strata or rebuild the plugin" : "rebuild the plugin");
}

std::string full_name(PluginKind kind, const std::string& name) {
  return std::string(to_string(kind)) + "/" + name;
}

std::string full_name(const Manifest& manifest) {
  return manifest.name.empty() ? "" : full_name(manifest.kind, manifest.name);
}

void parse_manifest(const std::string& text, Manifest& manifest) {
  const json object = [&] {
    try {
      return text::JsonDocument(text, {"", "it"}, manifest_limits).object().json();
    } catch (const UserError& error) {
      throw DamagedFile(std::string("has a manifest that cannot be read: ") + error.what());
    }
  }();
  manifest.text = text;
  const int format = integer_field(object, "format");
  if (format != 1) {
    throw DamagedFile("has a manifest of format " + std::to_string(format) + ", this Strata reads format 1");
  }
  const std::string kind = text_field(object, "kind");
  const std::string name = text_field(object, "name");
  const std::optional<PluginKind> known = plugin_kind_from_string(kind);
  if (known && is_plugin_name(name)) {
    manifest.kind = *known;
    manifest.name = name;
  }
  manifest.version = text_field(object, "version");
  manifest.description = text_field(object, "description");
  manifest.abi = read_abi(object);
  const std::string obstacle = abi_obstacle(manifest.abi, {STRATA_ABI_MAJOR, STRATA_ABI_MINOR});
  if (!obstacle.empty()) throw DamagedFile(obstacle);
  manifest.fingerprint = {text_field(object, "libtorch"), text_field(object, "standard_library"),
                          text_field(object, "cxx11_abi"), text_field(object, "sanitizer"),
                          text_field(object, "compiler")};
  check_fingerprint(manifest.fingerprint);
  // After the ABI: a newer host may know more kinds.
  if (!known)
    throw DamagedFile("has the unknown kind '" + kind +
                      "': " + text::suggestion(kind, {plugin_kind_names.begin(), plugin_kind_names.end()}));
  if (!is_plugin_name(name))
    throw DamagedFile("has the name '" + name + "'; a name consists of a-z, 0-9 and _, and does not begin with _");
  manifest.author = text_field(object, "author");
  manifest.license = text_field(object, "license");
  manifest.capabilities = read_capabilities(object, manifest.kind);
  read_equivalences(object, manifest);
  manifest.state_version = integer_field(object, "state_version");
  manifest.options = read_options(object);
  for (const EquivalenceWith& with : manifest.equivalence_with)
    if (std::ranges::none_of(manifest.options, [&](const OptionSpec& option) {
          const std::vector<std::string> switches{"true", "false"};
          const std::vector<std::string>& values = option.type == "boolean" ? switches : option.choices;
          return option.name == with.option && std::ranges::find(values, with.value) != values.end();
        }))
      throw DamagedFile("declares an equivalence with " + with.option + "=" + with.value +
                        "; it has no such choice or switch");
}

}  // namespace strata::plugins
