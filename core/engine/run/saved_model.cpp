#include "run/saved_model.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/resume.hpp"
#include "resolve/model_options.hpp"

namespace strata::run {

namespace {

using checkpoint::TrainingCheckpoint;

std::string key_of(const config::PluginChoice& model, const std::string& option) {
  return model.slot + "." + model.name + "." + option;
}

bool gives(const config::PluginChoice& model, const std::string& option) {
  return std::ranges::find(model.given, option) != model.given.end();
}

// The model's options of the saved run. An unsaved option, of a later version, has its default.
OptionValues saved_options(const TrainingCheckpoint& saved, const config::PluginChoice& model,
                           plugins::PluginRegistry& registry) {
  const std::vector<OptionSpec>& specs = registry.find(PluginKind::Model, model.plugin).manifest.options;
  OptionValues values = default_options(specs);
  for (const OptionSpec& spec : specs)
    if (const std::string* const text = saved.setting(key_of(model, spec.name)))
      values.set(spec.name, parse_option(spec, *text));
  return values;
}

}  // namespace

void take_saved_model(resolve::ResolvedRun& run, const std::string& path) {
  const TrainingCheckpoint saved = checkpoint::read_latest(path);
  config::PluginChoice& model = run.config.model.plugin;
  const std::string folder = saved.folder.string();
  const std::string* const plugin = saved.setting("model.plugin");
  if (plugin != nullptr && !plugin->starts_with('/') && *plugin != model.name)
    throw UserError(
        model.place,
        "model.plugin is {}, and {} was saved with model.plugin = {}; use the model of the run that saved it",
        model.name, folder, *plugin);
  const OptionValues theirs = saved_options(saved, model, *run.registry);
  OptionValues taken = model.options;
  for (const std::string& option : theirs.names())
    if (!gives(model, option) || resolve::acts_in_training_only(option)) taken.set(option, theirs.value(option));
  const std::vector<std::string> others = resolve::options_of_another_model(model, taken, theirs, *run.registry);
  if (!others.empty()) {
    const std::string key = key_of(model, others.front());
    throw UserError(
        model.options_place,
        "{} is {}, and {} was saved with {}: the model would differ from the saved one; leave {} out to evaluate the "
        "saved one",
        key, config::to_text(taken.value(others.front())), folder, config::to_text(theirs.value(others.front())), key);
  }
  for (const std::string& option : theirs.names())
    if (config::to_text(model.options.value(option)) != config::to_text(taken.value(option)))
      run.config.origins[key_of(model, option)] = folder;
  model.options = taken;
}

void check_kept_model(const config::RunConfig& config, plugins::PluginRegistry& registry,
                      const TrainingCheckpoint& saved) {
  const config::PluginChoice& model = config.model.plugin;
  if (model.options.names().empty()) return;
  const OptionValues then = saved_options(saved, model, registry);
  const std::vector<std::string> others = resolve::options_of_another_model(model, model.options, then, registry);
  if (others.empty()) return;
  const std::string key = key_of(model, others.front());
  throw UserError(
      "{}: was saved with {} = {}, and this run has {}; a resumed run must keep its model: set {} back, or start anew "
      "from exported weights (strata checkpoint export, model.init)",
      saved.folder.string(), key, config::to_text(then.value(others.front())),
      config::to_text(model.options.value(others.front())), key);
}

void check_resume(const resolve::ResolvedRun& run, const std::optional<std::string>& from) {
  checkpoint::check_start(run.config, from);
  if (!from) return;
  std::optional<TrainingCheckpoint> saved;
  try {
    saved = checkpoint::read_latest(*from == "latest" ? run.config.checkpoint.path : *from);
  } catch (const UserError&) {
    return;  // there is none yet, or it is damaged and an earlier one will be looked for: see resume()
  }
  check_kept_model(run.config, *run.registry, *saved);
}

std::optional<checkpoint::Resumed> resume(Run& run, const resolve::ResolvedRun& resolved, const std::string& from) {
  const std::optional<checkpoint::Resumed> resumed = run.resume(from);
  if (resumed) check_kept_model(resolved.config, *resolved.registry, TrainingCheckpoint::read(resumed->folder));
  return resumed;
}

}  // namespace strata::run
