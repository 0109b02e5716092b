#include "tools/chosen/chosen_plugin.hpp"

#include <strata/error.hpp>

#include "plugins/host_context.hpp"
#include "text/nearest.hpp"

namespace strata::cli {

namespace {

OptionValues values_of(const plugins::Manifest& manifest, const OptionTexts& texts) {
  OptionValues values = default_options(manifest.options);
  for (const auto& [key, text] : texts) {
    const OptionSpec* known = nullptr;
    std::vector<std::string> names;
    for (const OptionSpec& spec : manifest.options) {
      names.push_back(spec.name);
      if (spec.name == key) known = &spec;
    }
    if (known == nullptr)
      throw UserError("--set {}={}: {} has no such option{}", key, text, plugins::full_name(manifest),
                      names.empty() ? "; it has no options" : "; " + text::suggestion(key, names));
    values.set(key, parse_option(*known, text));
  }
  return values;
}

}  // namespace

OptionTexts options_of(const std::vector<std::string>& settings) {
  OptionTexts options;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UserError("--set {}: give OPTION=VALUE, an option of the plugin", setting);
    options.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return options;
}

ChosenPlugin::ChosenPlugin(plugins::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path,
                           const OptionTexts& options, int rank, const MeshShape& mesh)
    : registry_(registry),
      found_(registry.find(kind, name_or_path)),
      context_(std::make_unique<plugins::HostContext>(plugins::full_name(found_.manifest),
                                                      values_of(found_.manifest, options),
                                                      plugins::Surroundings{rank, mesh, LogLevel::Warning})) {}

}  // namespace strata::cli
