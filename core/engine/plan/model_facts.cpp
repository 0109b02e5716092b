#include "plan/model_facts.hpp"

#include <strata/error.hpp>
#include <strata/model.hpp>

#include <functional>
#include <memory>

#include "checkpoint/hugging_face.hpp"
#include "plugins/engine_plugins.hpp"

namespace strata::plan {

std::string model_config(const config::RunConfig& config) {
  return config.model.init.empty() ? "" : checkpoint::HuggingFaceFolder(config.model.init).config_text();
}

namespace {

// The result of `ask` for the config's model, with the sizes of its config.json if any.
std::int64_t of_model(const config::RunConfig& config, plugins::PluginRegistry& registry,
                      const std::string& config_json, const std::function<std::int64_t(const Model& model)>& ask) {
  const config::PluginChoice& choice = config.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugins::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  if (!config_json.empty()) model->configure(config_json);
  return ask(*model);
}

}  // namespace

std::int64_t hidden_size(const config::RunConfig& config, plugins::PluginRegistry& registry) {
  return of_model(config, registry, model_config(config), [&](const Model& model) {
    const LayerInfo first = model.describe(0, {1, config.model.seq_len, at::kFloat});
    if (first.outputs.empty() || first.outputs.front().extents.empty())
      throw UserError(config.model.plugin.place,
                      "model {} reports no hidden size, which a value \"auto\" needs; give the value",
                      config.model.plugin.plugin);
    return first.outputs.front().extents.back();
  });
}

std::int64_t vocabulary_of(const config::RunConfig& config, plugins::PluginRegistry& registry,
                           const std::string& config_json) {
  return of_model(config, registry, config_json, [](const Model& model) { return model.vocabulary(); });
}

}  // namespace strata::plan
