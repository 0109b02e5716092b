#include "tools/bench/plugin_under_test.hpp"

#include <strata/error.hpp>

#include "plugin_host/host_context.hpp"
#include "text/nearest.hpp"

namespace strata::bench {

namespace {

OptionValues values_of(const plugin_host::Manifest& manifest,
                       const std::vector<std::pair<std::string, std::string>>& texts) {
  OptionValues values = default_options(manifest.options);
  for (const auto& [key, text] : texts) {
    const OptionSpec* known = nullptr;
    std::vector<std::string> names;
    for (const OptionSpec& spec : manifest.options) {
      names.push_back(spec.name);
      if (spec.name == key) known = &spec;
    }
    if (known == nullptr)
      throw UserError("--set " + key + "=" + text + ": " + full_name(manifest) + " has no such option" +
                      (names.empty() ? "; it has no options" : "; " + config::suggestion(key, names)));
    values.set(key, parse_option(*known, text));
  }
  return values;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> options_of(const std::vector<std::string>& settings) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UserError("--set " + setting + ": give OPTION=VALUE, an option of the plugin");
    options.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return options;
}

PluginUnderTest::PluginUnderTest(plugin_host::PluginRegistry& registry, PluginKind kind,
                                 const std::string& name_or_path, const Settings& settings, const MeshShape& mesh)
    : registry_(registry),
      found_(registry.find(kind, name_or_path)),
      name_(full_name(found_.manifest)),
      context_(std::make_unique<plugin_host::HostContext>(
          name_, values_of(found_.manifest, settings.options),
          plugin_host::Surroundings{settings.place.rank, mesh, LogLevel::Warning})) {}

PluginUnderTest::~PluginUnderTest() = default;

}  // namespace strata::bench
