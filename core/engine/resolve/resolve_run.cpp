#include "resolve/resolve_run.hpp"

#include <strata/model.hpp>
#include <strata/options_in_file.hpp>

#include <algorithm>
#include <set>

#include "checkpoint/hugging_face.hpp"
#include "config/listing.hpp"
#include "plugins/engine_plugins.hpp"
#include "plugins/plugin_call.hpp"
#include "resolve/model_options.hpp"
#include "step/learning_rate.hpp"

namespace strata::resolve {

namespace {

// Keeps what a model's file decides in the config, as if the config had said it.
class FileOptions final : public OptionsInFile {
 public:
  explicit FileOptions(config::RunConfig& run) : run_(run), choice_(run.model.plugin) {}

  void take(std::string_view option, const OptionValue& value, std::string_view key) override {
    const std::string name(option), path = choice_.slot + "." + choice_.name + "." + name;
    const std::string now = config::to_text(choice_.options.value(name)), in_file = config::to_text(value);
    const bool given = std::find(choice_.given.begin(), choice_.given.end(), name) != choice_.given.end();
    if (given && now != in_file && now != "auto" && contradiction.empty())
      contradiction = path + " is " + now + ", and the config.json of model.init has " + in_file + " (" +
                      std::string(key) + "); leave the option out to use the file's";
    taken.insert(name);
    choice_.options.set(name, value);
    if (!given) run_.origins[path] = run_.model.init + "/config.json " + std::string(key);
  }

  std::string contradiction;  // of an option that the config gives; empty: none
  std::set<std::string> taken;

 private:
  config::RunConfig& run_;
  config::PluginChoice& choice_;
};

// Throws UserError for an option that makes another model and has no effect because of the folder's config.json, though
// the plugin does not report that the file sets it.
void check_given(const config::RunConfig& run, plugins::PluginRegistry& registry, const std::string& name,
                 const std::string& config_json) {
  const config::PluginChoice& choice = run.model.plugin;
  if (acts_in_training_only(name)) return;
  OptionValues without = choice.options;
  without.set(name, default_options(registry.find(PluginKind::Model, choice.plugin).manifest.options).value(name));
  const std::optional<std::string> given = architecture(choice, choice.options, registry);
  const std::optional<std::string> made = architecture(choice, choice.options, registry, config_json);
  const bool makes_another = given && given != architecture(choice, without, registry);
  if (!makes_another || given == made || made != architecture(choice, without, registry, config_json)) return;
  throw UserError(
      choice.options_place,
      "{}.{}.{} is {}, and the config.json of model.init has another value; leave the option out to use the file's",
      choice.slot, choice.name, name, config::to_text(choice.options.value(name)));
}

// The model's sizes are those of the folder that its weights come from.
void take_file_options(config::RunConfig& run, plugins::PluginRegistry& registry) {
  if (run.model.init.empty()) return;
  FileOptions options(run);
  const config::PluginChoice& choice = run.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugins::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options, &options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  const std::string text = checkpoint::HuggingFaceFolder(run.model.init).config_text();
  plugins::plugin_call(choice.kind + "/" + choice.name, "configure()", 0, [&] { model->configure(text); });
  if (!options.contradiction.empty()) throw UserError(choice.options_place, options.contradiction);
  for (const std::string& name : choice.given)
    if (!options.taken.contains(name)) check_given(run, registry, name, text);
}

}  // namespace

ResolvedRun resolve_run(std::vector<config::Node> trees, const config::World& world,
                        std::shared_ptr<plugins::PluginRegistry> registry, const config::PluginSource& plugins,
                        config::DataSection data) {
  ResolvedRun run;
  run.registry = std::move(registry);
  const Dialect* const dialect = trees.size() > 1 ? dialect_of(trees[1]) : nullptr;
  DialectAnswers answers;
  do {
    std::vector<config::Node> own = trees;
    if (dialect != nullptr) run.translation = dialect->translate(own, plugins, answers);
    run.config = config::resolve(std::move(own), world, plugins, data);
    take_file_options(run.config, *run.registry);
  } while (dialect != nullptr && dialect->answer(*run.translation, run.config, world, *run.registry, answers));
  step::RunLearningRate(run.config, *run.registry).check();
  if (run.translation) say_derived(*run.translation, config::listing(run.config));
  return run;
}

ResolvedRun read_run(
    const std::string& config_file, const std::vector<std::string>& settings, const config::World& world,
    config::DataSection data,
    const std::function<void(std::vector<config::Node>& trees, plugins::PluginRegistry& registry)>& extend) {
  std::vector<config::Node> trees = config::read_trees(config_file, settings);
  std::shared_ptr<plugins::PluginRegistry> registry = plugins::open_registry(config::plugin_path(trees));
  if (extend) extend(trees, *registry);
  const plugins::EnginePlugins plugins(registry);
  return resolve_run(std::move(trees), world, std::move(registry), plugins, data);
}

}  // namespace strata::resolve
