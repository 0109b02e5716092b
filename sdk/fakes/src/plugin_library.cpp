#include <dlfcn.h>
#include <strata/fakes/plugin_library.hpp>

#include <nlohmann/json.hpp>

namespace strata::fakes {

namespace {

std::vector<OptionSpec> read_options(const nlohmann::json& manifest) {
  std::vector<OptionSpec> specs;
  for (const nlohmann::json& option : manifest.at("options")) {
    if (option.is_null()) continue;  // the list's end, see STRATA_OPTIONS
    const auto text = [&](const char* field) { return option.at(field).get<std::string>(); };
    specs.push_back(make_option_spec(text("name"), text("type"), text("default"), text("limits"), text("unit"),
                                     text("documentation")));
  }
  return specs;
}

const OptionSpec& find(const std::vector<OptionSpec>& specs, const std::string& name, const std::string& plugin) {
  for (const OptionSpec& spec : specs)
    if (spec.name == name) return spec;
  throw UserError("{} has no option '{}'", plugin, name);
}

}  // namespace

PluginLibrary::PluginLibrary(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw EnvironmentError(dlerror());
  using Entry = const PluginEntry*();
  Entry* const find_entry = reinterpret_cast<Entry*>(dlsym(library, "strata_plugin_entry_v1"));
  if (find_entry == nullptr) throw EnvironmentError("{} exports no strata_plugin_entry_v1: it is not a plugin", file);
  entry_ = find_entry();
  const nlohmann::json manifest = nlohmann::json::parse(entry_->manifest);
  const std::string kind = manifest.at("kind").get<std::string>();
  const std::optional<PluginKind> known = plugin_kind_from_string(kind);
  if (!known) throw EnvironmentError("{} is of the unknown kind '{}'", file, kind);
  kind_ = *known;
  name_ = kind + "/" + manifest.at("name").get<std::string>();
  options_ = read_options(manifest);
}

OptionValues PluginLibrary::values(const OptionTexts& changed) const {
  OptionValues values = default_options(options_);
  for (const auto& [name, text] : changed) values.set(name, parse_option(find(options_, name, name_), text));
  return values;
}

}  // namespace strata::fakes
