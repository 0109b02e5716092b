#include <strata/error.hpp>

#include <algorithm>
#include <atomic>

#include "plan/choose_offload.hpp"
#include "resolve/unused_settings.hpp"
#include "run/implementation.hpp"
#include "run/launch_groups.hpp"

namespace strata {

namespace {

constexpr const char* program_model = "program";  // what errors and `config show` call a model that the program brings

// Keys that a config may not have when the program makes the model.
void check_no_model(const std::vector<config::Node>& trees) {
  for (const config::Node& tree : trees) {
    const config::Node* section = config::find(tree, "model");
    const config::Node* plugin =
        section != nullptr && section->kind == config::NodeKind::Map ? section->get("plugin") : section;
    if (plugin == nullptr || plugin->kind != config::NodeKind::Scalar) continue;
    throw UserError(plugin->place,
                    "model.plugin is {}, and this program passes its own model: leave model.plugin out, or call "
                    "initialize without a model",
                    config::shown(plugin->text));
  }
}

void add(plugins::PluginRegistry& registry, ProgramPlugin plugin) {
  registry.register_plugin(plugin.kind, plugin.name, std::move(plugin.make), std::move(plugin.options),
                           std::move(plugin.capabilities));
}

// The program's model while the config is resolved: dry runs and measured steps end, and the model goes on.
class LentModel final : public Model {
 public:
  explicit LentModel(Model& model) : model_(model) {}
  void configure(const std::string& config_json) override { model_.configure(config_json); }
  int layers() const override { return model_.layers(); }
  std::int64_t vocabulary() const override { return model_.vocabulary(); }
  std::int64_t maximum_sequence_length() const override { return model_.maximum_sequence_length(); }
  LayerInfo describe(int layer, const BatchShape& batch) const override { return model_.describe(layer, batch); }
  std::unique_ptr<Layer> build(int layer, ModelContext& context) const override { return model_.build(layer, context); }
  CheckpointNames checkpoint_names() const override { return model_.checkpoint_names(); }
  std::string hugging_face_config(at::ScalarType dtype) const override { return model_.hugging_face_config(dtype); }

 private:
  Model& model_;
};

struct ProgramModel {
  std::unique_ptr<Model> model;
  bool lent = true;  // until the config is resolved
};

ProgramPlugin plugin_of(const std::shared_ptr<ProgramModel>& held) {
  const auto make = [held](PluginContext&) -> std::unique_ptr<Plugin> {
    if (!held->model) throw Bug("the program's model was taken before");
    if (held->lent) return std::make_unique<LentModel>(*held->model);
    return std::move(held->model);
  };
  return {PluginKind::Model, program_model, make, {}, {}};
}

std::uint64_t next_identity() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Engine make_engine(std::unique_ptr<Model> model, const std::string& config_file,
                   const std::vector<std::string>& settings, std::vector<ProgramPlugin> plugins) {
  plugins::silence_libraries();
  const group::LaunchPlace place = group::read_environment();
  const stage::RankNumbers rank{place.rank, place.size, place.local_rank};
  const stage::MakeGroups groups = run::launch_groups(place);
  const auto settle = [&](resolve::ResolvedRun& run) {
    plan::settle_offload(run, rank, std::max(place.local_size, 1), groups, rank.rank == 0);
  };
  return Engine(std::make_unique<Engine::Implementation>(
      read_program_config(std::move(model), config_file, settings, std::move(plugins), run::world_of(place), settle),
      rank, groups));
}

}  // namespace

resolve::ResolvedRun read_program_config(std::unique_ptr<Model> model, const std::string& config_file,
                                         std::vector<std::string> settings, std::vector<ProgramPlugin> plugins,
                                         const config::World& world,
                                         const std::function<void(resolve::ResolvedRun&)>& settle) {
  const auto held = std::make_shared<ProgramModel>(ProgramModel{std::move(model)});
  const auto extend = [&](std::vector<config::Node>& trees, plugins::PluginRegistry& registry) {
    for (ProgramPlugin& plugin : plugins) add(registry, std::move(plugin));
    resolve::check_program_keys(trees);
    if (!held->model) return;
    check_no_model(trees);
    settings.push_back(std::string("model.plugin=") + program_model);
    trees.back() = config::read_settings(settings);
    add(registry, plugin_of(held));
  };
  resolve::ResolvedRun run = resolve::read_run(config_file, settings, world, config::DataSection::Optional, extend);
  resolve::check_program_keys(run.config);
  resolve::check_memory_budget(run);
  if (settle) settle(run);
  held->lent = false;
  return run;
}

Engine::Implementation::Implementation(resolve::ResolvedRun resolved_run, const stage::RankNumbers& place,
                                       const stage::MakeGroups& make_groups)
    : resolved(std::move(resolved_run)),
      report({}, resolved.config, place.rank),
      run(resolved, run::open_training(resolved.config, place.rank), place, make_groups),
      parts(step::StepInParts::cut(run.session().program(), run.session().executor())),
      identity(next_identity()) {
  run.try_writing(config().export_path);
  run.fill();
}

Engine initialize(std::unique_ptr<Model> model, const std::string& config_file,
                  const std::vector<std::string>& settings, std::vector<ProgramPlugin> plugins) {
  if (!model)
    throw UserError("strata::initialize got a null model; leave the argument out to train the config's model");
  return plugins::for_program([&] { return make_engine(std::move(model), config_file, settings, std::move(plugins)); });
}

Engine initialize(const std::string& config_file, const std::vector<std::string>& settings,
                  std::vector<ProgramPlugin> plugins) {
  return plugins::for_program([&] { return make_engine(nullptr, config_file, settings, std::move(plugins)); });
}

}  // namespace strata
