#include "dry_run/model_facts.hpp"

#include <strata/error.hpp>
#include <strata/model.hpp>

#include <memory>

#include "checkpoint/hugging_face.hpp"
#include "plugin_host/engine_plugins.hpp"

namespace strata::runtime {

std::string model_config(const config::RunConfig& config) {
  return config.model.init.empty() ? "" : checkpoint::HuggingFaceFolder(config.model.init).config_text();
}

std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  const config::PluginChoice& choice = config.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  if (!config.model.init.empty()) model->configure(model_config(config));
  const LayerInfo first = model->describe(0, {1, config.model.seq_len, at::kFloat});
  if (first.outputs.empty() || first.outputs.front().extents.empty())
    throw UserError(choice.place, "model " + choice.plugin +
                                      " does not say its hidden size, which a value \"auto\" needs; give the value");
  return first.outputs.front().extents.back();
}

}  // namespace strata::runtime
