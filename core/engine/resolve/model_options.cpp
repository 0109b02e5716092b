#include "resolve/model_options.hpp"

#include <strata/error.hpp>
#include <strata/model.hpp>

#include "plugins/engine_plugins.hpp"

namespace strata::resolve {

std::optional<std::string> architecture(const config::PluginChoice& choice, const OptionValues& options,
                                        plugins::PluginRegistry& registry, const std::string& config_json) {
  try {
    const std::unique_ptr<PluginContext> context =
        plugins::asking_context(registry.find(PluginKind::Model, choice.plugin), options);
    const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
    if (!config_json.empty()) model->configure(config_json);
    return model->hugging_face_config(at::kFloat);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool acts_in_training_only(std::string_view option) {
  return option.ends_with("dropout");
}

std::vector<std::string> options_of_another_model(const config::PluginChoice& choice, const OptionValues& one,
                                                  const OptionValues& other, plugins::PluginRegistry& registry) {
  std::vector<std::string> differing;
  OptionValues in_evaluation = one;
  for (const std::string& name : other.names()) {
    if (one.contains(name) && one.value(name) == other.value(name)) continue;
    if (acts_in_training_only(name))
      in_evaluation.set(name, other.value(name));
    else
      differing.push_back(name);
  }
  if (differing.empty()) return {};
  const std::optional<std::string> theirs = architecture(choice, other, registry);
  if (!theirs) return differing;
  if (architecture(choice, in_evaluation, registry) == theirs) return {};
  std::vector<std::string> decisive;  // each alone makes `other` another model
  for (const std::string& name : differing) {
    OptionValues changed = other;
    changed.set(name, one.value(name));
    if (architecture(choice, changed, registry) != theirs) decisive.push_back(name);
  }
  return decisive.empty() ? differing : decisive;
}

}  // namespace strata::resolve
